"""Gaussian posteriors with a diagonal covariance, which encoders return."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aem.conditionals.proposals.base import LOG_ROOT_2PI


@dataclass(frozen=True)
class GaussianPosterior:
    """q(z | x) of N images (or of anything an encoder reads): a Gaussian with diagonal covariance each.

    Parameters
    ----------
    mean
        means of the L latents.
    scale
        standard deviations of the L latents.
    """

    mean: Float[Tensor, "N L"]
    scale: Float[Tensor, "N L"]

    def rsample(
        self, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N K L"]:
        """Draw K latents of each image, differentiable in mean and scale.

        Parameters
        ----------
        samples
            K, the number of draws.
        generator
            random generator; that of PyTorch without one.
        """
        n, latents = self.mean.shape
        noise = torch.randn(
            (n, samples, latents),
            generator=generator,
            dtype=self.mean.dtype,
            device=self.mean.device,
        )
        return self.mean[:, None] + self.scale[:, None] * noise

    @torch.no_grad()
    def sample(self, seed: int) -> Float[Tensor, "N L"]:
        """Draw one latent of each image, a function of the seed.

        Parameters
        ----------
        seed
            the same seed draws the same latents.
        """
        generator = torch.Generator(self.mean.device).manual_seed(seed)
        return self.rsample(1, generator)[:, 0]

    def log_prob(self, z: Float[Tensor, "N K L"]) -> Float[Tensor, "N K"]:
        """Return the log density of K latents of each image.

        Parameters
        ----------
        z
            K latent vectors of each image.
        """
        standardised = (z - self.mean[:, None]) / self.scale[:, None]
        terms = -0.5 * standardised.square() - self.scale.log()[:, None] - LOG_ROOT_2PI
        return terms.sum(-1)

    def kl(self) -> Float[Tensor, "N L"]:
        """Return the Kullback–Leibler divergence from the standard normal, by latent."""
        return 0.5 * (self.mean.square() + self.scale.square() - 1) - self.scale.log()

    def detach(self) -> "GaussianPosterior":
        """Return the posterior without gradients."""
        return GaussianPosterior(self.mean.detach(), self.scale.detach())
