"""A mixture prepared for many evaluations in single precision, where a quadrature needs no more."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.proposals.base import Measure
from aem.conditionals.proposals.components import Component

LOWEST = -80.0  # exponents below are slow to compute, and count for nothing
CLOSE = 0.2  # how far the logarithm of a probability may be from what a rough quantile is asked for
MOST_STEPS = 80
AT_A_TIME = 2**16  # numbers that had better stay in a cache


@dataclass(frozen=True)
class SingleMixture(Measure):
    """Density and probabilities of N mixtures, to about six digits.

    Differences of values and locations are taken in double precision, and all else in single: so a
    narrow component far from zero is as exact as any other.

    Parameters
    ----------
    component
        the standard distribution, the same for all components.
    locs
        locations of the components, in double precision.
    rates
        one over their scales.
    log_heights
        logarithms of their largest densities, times their weights.
    weights
        their weights.
    """

    component: Component
    locs: Float[Tensor, "N K"]
    rates: Float[Tensor, "N K"]
    log_heights: Float[Tensor, "N K"]
    weights: Float[Tensor, "N K"]

    @classmethod
    def of(
        cls,
        component: Component,
        log_weights: Float[Tensor, "N K"],
        locs: Float[Tensor, "N K"],
        scales: Float[Tensor, "N K"],
    ) -> Self:
        """Prepare mixtures whose parameters are in double precision.

        Parameters
        ----------
        component
            the standard distribution.
        log_weights
            log weights of the components, normalised.
        locs
            their locations.
        scales
            their scales.
        """
        heights = log_weights - scales.log() + component.log_height
        weights = log_weights.exp()
        return cls(component, locs, scales.reciprocal().float(), heights.float(), weights.float())

    def select(self, index: Int[Tensor, " P"]) -> Self:
        """Return some of the mixtures.

        Parameters
        ----------
        index
            their numbers; one may be named more than once.
        """
        parts = (self.locs, self.rates, self.log_heights, self.weights)
        return type(self)(self.component, *(part[index] for part in parts))

    def density(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return the density at nodes of each mixture, which far out rounds to zero.

        Parameters
        ----------
        x
            S nodes of each, close together where a digit counts.
        """
        centre = x[:, x.shape[1] // 2, None]
        first = (centre - self.locs).float() * self.rates
        z = (x - centre).float()[..., None] * self.rates[:, None]
        z.add_(first[:, None])
        level = self.component.exponent(z).neg_().add_(self.log_heights[:, None])
        return level.clamp_min_(LOWEST).exp_().sum(-1).to(x.dtype)

    def masses(self, points: Float[Tensor, "N S"]) -> Float[Tensor, "N T"]:
        """Return the probabilities between neighbouring points of each mixture.

        Parameters
        ----------
        points
            S rising points of each; there is one probability less.
        """
        # Of each component by itself, from its nearer tail: a difference of sums over components
        # would have lost the digits of a light one between two heavy ones.
        side = torch.where(points.mean(-1, keepdim=True) > self.locs, -1.0, 1.0)
        z = (points[..., None] - self.locs[:, None]).float().mul_((side * self.rates)[:, None])
        between = self._cdf(z).diff(dim=1).abs_()
        return (between * self.weights[:, None]).sum(-1).to(points.dtype)

    def _cdf(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """The component's CDF."""
        furthest = self.component.furthest
        return self.component.cdf(z.clamp_(-furthest, furthest))

    def about(self, levels: tuple[float, ...]) -> Float[Tensor, "N S"]:
        """Return points that have about these probabilities below them: to a fifth, or so.

        Parameters
        ----------
        levels
            rising probabilities, none above one half.
        """
        size = max(AT_A_TIME // (len(levels) * self.locs.shape[1]), 1)
        every = torch.arange(len(self.locs), device=self.locs.device).split(size)
        parts = [self.select(some)._about(levels) for some in every]
        return torch.cat(parts) if parts else self.locs.new_zeros(0, len(levels))

    def _about(self, levels: tuple[float, ...]) -> Float[Tensor, "N S"]:
        """The same by Newton's method for log F(x) = log u, kept inside a shrinking bracket."""
        u = self.locs.new_tensor(levels)
        log_u, quantile = u.log().float(), self.component.quantile(u)[:, None]
        candidates = self.locs[:, None] + quantile / self.rates[:, None].double()
        heavy = (self.weights > 0)[:, None]  # others have no say
        low = candidates.masked_fill(~heavy, torch.inf).amin(-1)
        high = candidates.masked_fill(~heavy, -torch.inf).amax(-1)
        x = (candidates * self.weights[:, None].double()).sum(-1).clamp(low, high)
        # Far out the widest component decides.
        x = torch.where(u < 1e-3, 0.9 * low + 0.1 * x, x)
        for _ in range(MOST_STEPS):
            z = (x[..., None] - self.locs[:, None]).float().mul_(self.rates[:, None])
            level = self.component.exponent(z).neg_().add_(self.log_heights[:, None])
            density = level.clamp_min_(LOWEST).exp_().sum(-1)
            below = (self._cdf(z) * self.weights[:, None]).sum(-1)
            gap = below.log() - log_u
            done = gap.abs() <= CLOSE
            if bool(done.all()):
                break
            low, high = torch.where(gap < 0, x, low), torch.where(gap > 0, x, high)
            step = x - gap * below / density
            inside = (step > low) & (step < high)
            x = torch.where(done, x, torch.where(inside, step, 0.5 * (low + high)))
        return x

    def mirrored(self) -> Self:
        """Return the distributions of −x."""
        parts = (self.rates, self.log_heights, self.weights)
        return type(self)(self.component, -self.locs, *parts)
