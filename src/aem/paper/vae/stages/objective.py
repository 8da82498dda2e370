"""What stage one and the joint stage maximise: lower bounds of log p(x).

With one sample and the Gaussian prior it is the paper's E[log p(x | z)] − β KL(q ‖ p), the KL in
closed form. Otherwise it is the importance-weighted bound (Burda et al. 2015) log mean w with
w = p(x | z) (p(z) / q(z | x))^β, of which one sample is the evidence lower bound again. Its gradient
is the doubly reparameterised one (Tucker et al. 2018): decoder and prior see each sample's gradient
times its normalised weight, the encoder times its square, and nothing flows through the density of
the posterior's own draws. The plain gradient has the same mean, but the encoder's signal drowns in
its noise as samples are added.

A learnt prior is an AEM's proposal: normalised, differentiable, and cheap. (The AEM itself would
have to be estimated, and an estimated normaliser is no bound.)
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from aem.model.aem import AEM
from aem.paper.vae.networks import ConvolutionalVae
from aem.vae.priors import log_prior


def negative_bound(
    vae: ConvolutionalVae,
    prior: AEM | None,
    x: Float[Tensor, "B 1 28 28"],
    *,
    samples: int,
    beta: Float[Tensor, ""] | float,
    prior_only: bool = False,
) -> Float[Tensor, ""]:
    """Return minus the bound, in the mean over the batch.

    Parameters
    ----------
    vae
        encoder and decoder.
    prior
        an AEM whose proposal is the prior; None for the standard normal.
    x
        binary images.
    samples
        K, latents per image; one gives the evidence lower bound.
    beta
        weight of the KL divergence.
    prior_only
        whether gradients flow into the prior alone.
    """
    if prior is None and samples == 1:
        return _negative_elbo(vae, x, beta)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not prior_only):
        posterior = vae.encode(x)
        z = posterior.rsample(samples)
        log_likelihood = vae.log_likelihood(x, z)
        log_posterior = posterior.detach().log_prob(z)
    log_w = log_likelihood + beta * (log_prior(prior, z) - log_posterior)
    weights = log_w.detach().softmax(1)
    if z.requires_grad:
        z.register_hook(lambda gradient: gradient * weights[..., None])
    surrogate = -(weights * log_w).sum(1).mean()
    # Shown is the bound; only its gradient is the surrogate's.
    bound = log_w.detach().logsumexp(1).mean() - math.log(samples)
    return surrogate + (-bound - surrogate.detach())


def _negative_elbo(vae: ConvolutionalVae, x: Tensor, beta: Tensor | float) -> Float[Tensor, ""]:
    posterior = vae.encode(x)
    likelihood = vae.log_likelihood(x, posterior.rsample(1)).mean()
    return beta * posterior.kl().mean(0).sum() - likelihood
