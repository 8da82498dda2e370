"""Mixtures of K components of one kind, moved and stretched: one for each conditional of a batch.

To spare an inverse CDF stratified uniforms go through the components in order: the component whose
share of [0, 1) holds u, then its own quantile of the remainder. That is an exact sampler, and
`position` is its inverse.
"""

import math
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.randomness import uniforms
from aem.conditionals.proposals.base import Head, Measure, Proposal
from aem.conditionals.proposals.components import Component
from aem.conditionals.proposals.quantiles import invert_mixture_cdf
from aem.conditionals.proposals.single import SingleMixture
from aem.config import ModelConfig
from aem.nn.functions import softplus


class Mixture(Proposal):
    """A mixture of K components for each conditional of a batch.

    Parameters
    ----------
    logits
        unnormalised log weights of the components.
    locs
        locations of the components: what the standard distribution is moved by.
    scales
        positive scales of the components: what the standard distribution is stretched by.
    component
        the standard distribution, the same for all of them.
    """

    def __init__(
        self,
        logits: Float[Tensor, "*B K"],
        locs: Float[Tensor, "*B K"],
        scales: Float[Tensor, "*B K"],
        component: Component,
    ) -> None:
        self.logits, self.locs, self.scales = logits, locs, scales
        self.component = component
        self.heavy_tailed, self.terms = component.heavy_tailed, locs.shape[-1]

    @cached_property
    def log_weights(self) -> Float[Tensor, "*B K"]:
        """Log weights of the components, normalised."""
        return self.logits.log_softmax(-1)

    @property
    def batch(self) -> Float[Tensor, "*B"]:
        """A tensor of the batch's shape, type and device."""
        return self.locs[..., 0]

    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the mixture with a function applied to its parameters."""
        # By the logits: normalising weights again would change their last bits.
        return self._alike(change(self.logits), change(self.locs), change(self.scales))

    def _alike(self, logits: Tensor, locs: Tensor, scales: Tensor) -> Self:
        """Another mixture of the same components."""
        return type(self)(logits, locs, scales, self.component)

    def _standardise(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S K"]:
        return (x[..., None] - self.locs[..., None, :]) / self.scales[..., None, :]

    def _joint_log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S K"]:
        constant = self.log_weights - self.scales.log() + self.component.log_height
        return constant[..., None, :] - self.component.exponent(self._standardise(x))

    def log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Log density at each node."""
        return self._joint_log_prob(x).logsumexp(-1)

    def moments(self) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        """Mean and standard deviation; NaN, or an infinite deviation, where they do not exist."""
        weights = self.logits.softmax(-1)  # not from the cache, which knows whether gradients flow
        mean = (weights * self.locs).sum(-1) + self.component.mean
        own = self.component.variance * self.scales.square()
        variance = weights * (own + (self.locs - mean[..., None]).square())
        return mean, variance.sum(-1).sqrt()

    def density(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Density at each node: half the work of its logarithm, where a tail may round to zero."""
        heights = (self.log_weights - self.scales.log() + self.component.log_height).exp()
        bells = self.component.exponent(self._standardise(x)).neg_().exp_()
        return bells.mul_(heights[..., None, :]).sum(-1)

    def cdf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying below each node, with all its digits in the lower tail."""
        below = self.component.cdf(self._standardise(x))
        return (self.log_weights.exp()[..., None, :] * below).sum(-1)

    def sf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying above each node, with all its digits in the upper tail."""
        above = self.component.cdf(-self._standardise(x))
        return (self.log_weights.exp()[..., None, :] * above).sum(-1)

    def mirrored(self) -> Self:
        """The distribution of −x."""
        return self._alike(self.logits, -self.locs, self.scales)

    def icdf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Quantiles, to the last bits of the type."""
        weights = self.log_weights.exp()
        return invert_mixture_cdf(u, weights, self.locs, self.scales, self.component)

    def log_mass(self, low: Float[Tensor, "*B"], width: float) -> Float[Tensor, "*B"]:
        """Log probability between `low` and `low` + `width`, component by component."""
        start = (low[..., None] - self.locs) / self.scales
        end = start + width / self.scales
        # F(end) − F(start), seen from the side where both are small.
        flip = start + end > 0
        small, large = torch.where(flip, -end, start), torch.where(flip, -start, end)
        lower, upper = self.component.log_cdf(small), self.component.log_cdf(large)
        # So far out that the cell's ends are one number, it has of the tail what its width, in units of
        # the tail's decay, says.
        vanishing = (width / self.scales * self.component.decay(large)).clamp(max=1.0)
        share = upper + torch.where(lower < upper, -torch.expm1(lower - upper), vanishing).log()
        return (self.log_weights + share).logsumexp(-1)

    def in_single(self) -> Measure:
        """On a processor, unless tails go further than single precision does."""
        return self._single or self

    @cached_property
    def _single(self) -> SingleMixture | None:
        if self.heavy_tailed or self.locs.device.type != "cpu":
            return None
        return SingleMixture.of(self.component, self.log_weights, self.locs, self.scales)

    def about(self, levels: tuple[float, ...]) -> Float[Tensor, "N R"]:
        """Points with about these probabilities below them, and those with as much above."""
        near = any(v < 2 * u for u, v in pairwise(levels))  # so near that rough ones might cross
        if self._single is None or near:
            return super().about(levels)
        above = tuple(level for level in levels if level < 0.5)
        high = -self._single.mirrored().about(above).flip(-1)
        return torch.cat((self._single.about(levels), high), -1)

    def transport(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Component by cumulative weight, then its own quantile of the remainder."""
        weights = self.log_weights.exp()
        ends = weights.cumsum(-1)
        ends = ends / ends[..., -1:]
        component = torch.searchsorted(ends, u.contiguous(), right=True).clamp(
            max=ends.shape[-1] - 1
        )
        end, weight = ends.gather(-1, component), weights.gather(-1, component)
        smallest = torch.finfo(u.dtype).eps / 2
        v = (1 - (end - u) / weight.clamp_min(smallest)).clamp(smallest, 1 - smallest)
        locs, scales = self.locs.gather(-1, component), self.scales.gather(-1, component)
        return locs + scales * self.component.quantile(v)

    def position(self, x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Draw the component x came from, then the place x has within that component's share."""
        shares = self._joint_log_prob(x[..., None])[..., 0, :].softmax(-1).cumsum(-1)
        u = uniforms(x.shape, x)[..., None]
        component = torch.searchsorted(shares, u, right=True).clamp(max=shares.shape[-1] - 1)
        weights = self.log_weights.exp()
        ends = weights.cumsum(-1)
        weight = weights.gather(-1, component)
        start = ends.gather(-1, component) - weight
        standardised = self._standardise(x[..., None])[..., 0, :].gather(-1, component)
        below = self.component.cdf(standardised)
        return ((start + weight * below) / ends[..., -1:])[..., 0]


class MixtureHead(Head):
    """Turns φ [*B, 3K] into a mixture of K components: logits, locations and raw scales.

    A scale is `min_scale` plus the softplus of its raw scale. A subclass names the `component`.

    Parameters
    ----------
    components
        K, the number of components.
    min_scale
        the smallest scale a component may have, in standardised units.
    """

    component: Component

    def __init__(self, components: int, min_scale: float) -> None:
        super().__init__()
        self.components, self.min_scale = components, min_scale
        self.size, self.terms = 3 * components, components

    @classmethod
    def from_config(
        cls, config: ModelConfig, shift: Float[Tensor, " D"], scale: Float[Tensor, " D"]
    ) -> Self:
        """Make a head with the number of components and the smallest scale of the settings."""
        return cls(config.components, config.min_scale)

    def initial_bias(self) -> Float[Tensor, " P"]:
        """Return components side by side over standardised data, of scale one half.

        Components that start on top of each other receive the same gradient and part slowly.
        """
        k = self.components
        locs = torch.special.ndtri((torch.arange(k) + 0.5) / k)
        raw_scale = math.log(math.expm1(0.5))
        return torch.cat((torch.zeros(k), locs, torch.full((k,), raw_scale)))

    def parts(self, phi: Float[Tensor, "*B P"]) -> tuple[Tensor, Tensor, Tensor]:
        """Split φ into the parameters of a mixture, in float32 at least: tails do not survive bfloat16.

        Parameters
        ----------
        phi
            what the ARNN emits for each conditional.

        Returns
        -------
        logits : tensor [*B, K]
            unnormalised log weights.
        locs : tensor [*B, K]
            locations.
        scales : tensor [*B, K]
            scales, none below `min_scale`.
        """
        phi = phi.to(torch.promote_types(phi.dtype, torch.float32))
        logits, locs, raw_scales = phi.split(self.components, -1)
        return logits, locs, self.min_scale + softplus(raw_scales)

    def forward(
        self,
        phi: Float[Tensor, "*B P"],
        feature: int | None = None,
        past: Float[Tensor, "*A N"] | None = None,
    ) -> Mixture:
        """Build the mixture, whichever feature it is of."""
        return Mixture(*self.parts(phi), self.component)
