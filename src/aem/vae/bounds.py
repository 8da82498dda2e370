"""Lower bounds of log p(x) from draws of the posterior, whatever the prior.

With log w = log p(x | z) + log p(z) − log q(z | x) at K draws z of q(z | x), the mean of log w is the
evidence lower bound and log mean w the importance-weighted bound (Burda et al. 2015), which rises
with K towards log p(x). All priors are scored at the same draws, so that their differences are much
better known than the bounds themselves.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aem.vae.networks import ConvolutionalVae

DECODED = {"cpu": 512, "cuda": 16_384}  # latents decoded together


@dataclass(frozen=True)
class Draws:
    """K latents of each of N images, with what does not depend on the prior."""

    z: Float[Tensor, "N K L"]
    log_likelihood: Float[Tensor, "N K"]
    log_posterior: Float[Tensor, "N K"]

    def first(self, images: int) -> "Draws":
        """Those of the first images."""
        return Draws(self.z[:images], self.log_likelihood[:images], self.log_posterior[:images])

    def log_weights(self, log_prior: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """log w, in float64."""
        return self.log_likelihood.double() + log_prior.double() - self.log_posterior.double()

    def kl(self, log_prior: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
        """KL(q(z | x) ‖ p(z)) of each image, estimated from its draws."""
        return (self.log_posterior.double() - log_prior.double()).mean(1)


@torch.no_grad()
def draw_posterior(
    vae: ConvolutionalVae,
    x: Float[Tensor, "N 1 28 28"],
    samples: int,
    generator: torch.Generator | None = None,
    watch: Callable[[int], None] | None = None,
) -> Draws:
    """Encode, draw and decode, some images at a time."""
    parts = []
    for some in x.split(max(DECODED[x.device.type] // samples, 1)):
        posterior = vae.encode(some)
        z = posterior.rsample(samples, generator)
        parts.append((z, vae.log_likelihood(some, z), posterior.log_prob(z)))
        if watch is not None:
            watch(len(some))
    return Draws(*(torch.cat(column) for column in zip(*parts, strict=True)))


def elbo(log_weights: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
    """The evidence lower bound of each image."""
    return log_weights.mean(1)


def importance_bound(
    log_weights: Float[Tensor, "N K"], samples: int | None = None
) -> Float[Tensor, " N"]:
    """The importance-weighted bound of each image; with fewer samples the mean over groups of them."""
    n, k = log_weights.shape
    samples = k if samples is None else samples
    groups = log_weights[:, : k - k % samples].reshape(n, -1, samples)
    return (groups.logsumexp(-1) - math.log(samples)).mean(-1)
