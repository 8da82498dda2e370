"""Lower bounds of log p(x) from draws of the posterior, whatever the prior.

With log w = log p(x | z) + log p(z) − log q(z | x) at K draws z of q(z | x), the mean of log w is the
evidence lower bound and log mean w the importance-weighted bound (Burda et al. 2015), which rises
with K towards log p(x). All priors are scored at the same draws, so that their differences are much
better known than the bounds themselves.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.progress import Report, counting, silent
from aem.vae.posterior import GaussianPosterior
from aem.vae.priors import PriorScores

DECODED = {"cpu": 512, "cuda": 16_384}  # latents that are decoded together


@runtime_checkable
class Autoencoder(Protocol):
    """The protocol of encoder and decoder that the bounds need."""

    def encode(self, x: Tensor, /) -> GaussianPosterior:
        """Return q(z | x) of N images, or of whatever the encoder reads.

        Parameters
        ----------
        x
            the images [N, …].
        """

    def log_likelihood(self, x: Tensor, z: Tensor, /) -> Tensor:
        """Return log p(x | z) [N, K] of each image under each of its K latents.

        Parameters
        ----------
        x
            the images [N, …].
        z
            the latents [N, K, L].
        """


@dataclass(frozen=True)
class Draws:
    """K latents of each of N images, with all terms that do not depend on the prior.

    Parameters
    ----------
    z
        latent vectors, drawn from the posterior of each image.
    log_likelihood
        log p(x | z) of each.
    log_posterior
        log q(z | x) of each.
    """

    z: Float[Tensor, "N K L"]
    log_likelihood: Float[Tensor, "N K"]
    log_posterior: Float[Tensor, "N K"]

    def first(self, images: int) -> "Draws":
        """Return the draws of the first images.

        Parameters
        ----------
        images
            how many images, from the first on.
        """
        return Draws(self.z[:images], self.log_likelihood[:images], self.log_posterior[:images])

    def log_weights(self, log_prior: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """Return log w = log p(x | z) + log p(z) − log q(z | x) in float64.

        Parameters
        ----------
        log_prior
            log density of each latent under the prior.
        """
        return self.log_likelihood.double() + log_prior.double() - self.log_posterior.double()

    def kl(self, log_prior: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
        """Estimate KL(q(z | x) ‖ p(z)) of each image from its draws.

        Parameters
        ----------
        log_prior
            log density of each latent under the prior.
        """
        return (self.log_posterior.double() - log_prior.double()).mean(1)


@torch.no_grad()
def draw_posterior(
    vae: Autoencoder,
    x: Float[Tensor, "N ..."],
    samples: int,
    generator: torch.Generator | None = None,
    report: Report = silent,
) -> Draws:
    """Encode images, draw latents and decode them, some images at a time.

    Parameters
    ----------
    vae
        encoder and decoder.
    x
        images, or whatever the encoder reads, on its device.
    samples
        K, the number of latents of each image.
    generator
        random generator; that of PyTorch without one.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    parts, count = [], counting(report, "drawing latents", len(x))
    for some in x.split(max(DECODED[x.device.type] // samples, 1)):
        posterior = vae.encode(some)
        z = posterior.rsample(samples, generator)
        parts.append((z, vae.log_likelihood(some, z), posterior.log_prob(z)))
        count(len(some))
    return Draws(*(torch.cat(column) for column in zip(*parts, strict=True)))


def elbo(log_weights: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
    """Return the evidence lower bound of each image, the mean of its log weights.

    Parameters
    ----------
    log_weights
        log w of K draws of each image.
    """
    return log_weights.mean(1)


def importance_bound(
    log_weights: Float[Tensor, "N K"], samples: int | None = None
) -> Float[Tensor, " N"]:
    """Return the importance-weighted bound of each image.

    Parameters
    ----------
    log_weights
        log w of K draws of each image.
    samples
        how many draws a bound is of: with fewer than K the mean over groups of so many; None for
        all K.
    """
    n, k = log_weights.shape
    samples = k if samples is None else samples
    groups = log_weights[:, : k - k % samples].reshape(n, -1, samples)
    return (groups.logsumexp(-1) - math.log(samples)).mean(-1)


@dataclass(frozen=True)
class Bounds:
    """Bounds of log p(x) of N images under one prior, with the error each may have, in nats.

    Parameters
    ----------
    elbo
        evidence lower bound of each image.
    bound
        importance-weighted bound of each image.
    kl
        estimate of KL(q(z | x) ‖ p(z)) of each image.
    elbo_error
        how far the errors of the prior's scores may move the mean ELBO.
    bound_error
        how far they may move the mean bound.
    unmet
        how many latents were scored less accurately than asked for.
    impossible
        how many latents have density zero; one makes an image's ELBO −inf, not its bound.
    """

    elbo: Float[Tensor, " N"]
    bound: Float[Tensor, " N"]
    kl: Float[Tensor, " N"]
    elbo_error: float
    bound_error: float
    unmet: int
    impossible: int


def bounds_under(draws: Draws, scores: PriorScores) -> Bounds:
    """Compute the bounds of images under a prior from its scores of their draws.

    Parameters
    ----------
    draws
        latents of the images.
    scores
        the prior's scores of all latents, flattened in their order.
    """
    shape = draws.log_likelihood.shape
    log_prior = scores.log_prob.reshape(shape)
    log_w = draws.log_weights(log_prior)
    elbo_error = bound_error = 0.0
    if scores.error is not None:
        error = scores.error.reshape(shape).double()
        elbo_error = float(error.mean())
        # An image whose draws all have density zero has no weights.
        bound_error = float((error * log_w.softmax(1).nan_to_num(0.0)).sum(1).mean())
    return Bounds(
        elbo(log_w),
        importance_bound(log_w),
        draws.kl(log_prior),
        elbo_error,
        bound_error,
        0 if scores.unmet is None else int(scores.unmet.sum()),
        int(log_prior.isneginf().sum()),
    )
