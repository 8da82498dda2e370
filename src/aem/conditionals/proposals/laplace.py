"""Mixtures of Laplace distributions: peaked, with tails that fall exponentially.

Their densities have a kink at each location. The quadrature halves its panels there until no kink
matters, so exact scores take more nodes than those of Gaussians.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from aem.conditionals.proposals.components import Component
from aem.conditionals.proposals.mixture import MixtureHead


class Laplace(Component):
    """The standard Laplace distribution, e^(−|z|) / 2."""

    log_height = -math.log(2)
    variance = 2.0

    def exponent(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return |z|, the distance from zero."""
        return z.abs()

    def cdf(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return e^z / 2 below zero, and 1 − e^−z / 2 above."""
        tail = 0.5 * torch.exp(-z.abs())
        return torch.where(z < 0, tail, 1 - tail)

    def log_cdf(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return z − log 2 below zero, and log(1 − e^−z / 2) above."""
        return torch.where(z < 0, z - math.log(2), torch.log1p(-0.5 * torch.exp(-z.abs())))

    def quantile(self, u: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return log 2u below one half, and its mirror image above."""
        tail = torch.log(2 * torch.minimum(u, 1 - u))
        return torch.where(u < 0.5, tail, -tail)


class LaplaceHead(MixtureHead):
    """Turns φ [*B, 3K] into a mixture of Laplace distributions; see `MixtureHead`."""

    component = Laplace()
