"""Mixtures of Gaussians, the default proposal, with kernels for training on a GPU."""

import math
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.proposals.base import LOG_ROOT_2PI
from aem.conditionals.proposals.components import Component
from aem.conditionals.proposals.mixture import Mixture, MixtureHead
from aem.nn.kernels import applied, fuses_mixture


class Normal(Component):
    """The standard normal distribution."""

    furthest = 12.0
    log_height = -LOG_ROOT_2PI
    variance = 1.0

    def exponent(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return z² / 2."""
        return z.square().mul_(0.5)

    def cdf(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return Φ(z), accurate in the lower tail, unlike torch.special.ndtr."""
        below: Tensor = torch.special.erfc(-math.sqrt(0.5) * z)
        return 0.5 * below

    def log_cdf(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return log Φ(z)."""
        below: Tensor = torch.special.log_ndtr(z)
        return below

    def quantile(self, u: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return Φ⁻¹(u), the normal quantile."""
        z: Tensor = torch.special.ndtri(u)
        return z

    def decay(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return |z|, the asymptotic rate in the tail, where the rate is needed."""
        return z.abs()


NORMAL = Normal()


class GaussianMixture(Mixture):
    """A mixture of K Gaussians for each conditional of a batch, with kernels on a GPU.

    Parameters
    ----------
    logits
        unnormalised log weights of the components.
    locs
        means of the components.
    scales
        standard deviations of the components.
    """

    def __init__(
        self,
        logits: Float[Tensor, "*B K"],
        locs: Float[Tensor, "*B K"],
        scales: Float[Tensor, "*B K"],
    ) -> None:
        super().__init__(logits, locs, scales, NORMAL)

    def _alike(self, logits: Tensor, locs: Tensor, scales: Tensor) -> Self:
        return type(self)(logits, locs, scales)

    def log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Log density at each node."""
        if fuses_mixture(x, self.terms, x.shape[-1]):
            return self._fused_log_prob(x)
        return super().log_prob(x)

    def density(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Density at each node."""
        if fuses_mixture(x, self.terms, x.shape[-1]):
            return self._fused_log_prob(x).exp()
        return super().density(x)

    def transport(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Choose a component by cumulative weight, then take its quantile of the remainder."""
        if not fuses_mixture(u, self.terms, u.shape[-1]):
            return super().transport(u)
        from aem.nn.kernels import mixture

        drawn = mixture.transport(u.reshape(-1, u.shape[-1]), *self._flat())
        return drawn.view(u.shape)

    def nodes_around(
        self, x: Float[Tensor, "*B"], nodes: int
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B S"], Int[Tensor, "*B"]]:
        """Draw stratified nodes around data, by a kernel on a GPU."""
        if not fuses_mixture(x, self.terms, nodes):
            return super().nodes_around(x, nodes)
        from aem.nn.kernels.mixture import FusedMixture

        log_q, points, own = applied(FusedMixture, x.reshape(-1), *self._flat(), nodes)
        return log_q.view(x.shape), points.view(*x.shape, nodes), own.view(x.shape)

    def _flat(self) -> list[Float[Tensor, "N K"]]:
        """Logits, locations and scales of all conditionals, as the kernels read them."""
        return [t.reshape(-1, t.shape[-1]) for t in (self.logits, self.locs, self.scales)]

    def _fused_log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Compute log q by a kernel, with gradients for a single node only."""
        from aem.nn.kernels import mixture

        learning = torch.is_grad_enabled() and self.locs.requires_grad
        if not learning:
            return mixture.log_prob_at(x.reshape(-1, x.shape[-1]), *self._flat()).view(x.shape)
        if x.shape[-1] != 1:
            return super().log_prob(x)
        log_q: Tensor = applied(mixture.FusedLogProb, x.reshape(-1), *self._flat())
        return log_q.view(x.shape)


class GaussianHead(MixtureHead):
    """Turns φ [*B, 3K] into a mixture of Gaussians; see `MixtureHead`."""

    component = NORMAL

    def forward(
        self,
        phi: Float[Tensor, "*B P"],
        feature: int | None = None,
        past: Float[Tensor, "*A N"] | None = None,
    ) -> GaussianMixture:
        """Build the mixture, whichever feature it is of."""
        return GaussianMixture(*self.parts(phi))
