"""Proposals q(x_d; φ_d): the tractable distribution each energy is measured with.

A *head* turns the numbers φ that the ARNN emits into a proposal for a batch of conditionals.
Shapes: a proposal has any batch shape `*B` (usually [B, D]); nodes come last, `[*B, S]`.

Stratified nodes cut [0, 1) into S equal strata and put one uniform in each. To spare an inverse CDF
the mixture sends u through its components in order: the component whose share of [0, 1) holds u,
then the normal quantile of the remainder. That is an exact sampler, and `position` is its inverse.
"""

import math
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.errors import AemError
from aem.kernels import applied, fuses_mixture
from aem.nn.functions import softplus
from aem.quantiles import invert_mixture_cdf, normal_cdf
from aem.randomness import uniforms

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


def stratified_uniforms(like: Float[Tensor, "*B"], nodes: int) -> Float[Tensor, "*B S"]:
    """One uniform in each of S strata of [0, 1)."""
    noise = uniforms((*like.shape, nodes), like)
    u = (torch.arange(nodes, dtype=like.dtype, device=like.device) + noise) / nodes
    return u.clamp(max=1 - torch.finfo(like.dtype).eps / 2)  # rounding can reach one


@runtime_checkable
class Proposal(Protocol):
    """What the rest of the library asks of a proposal."""

    @property
    def batch(self) -> Float[Tensor, "*B"]:
        """A tensor of the batch's shape, type and device."""

    def log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Log density at each node."""

    def cdf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying below each node."""

    def sf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying above each node."""

    def icdf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Quantiles."""

    def transport(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Send uniforms to draws; not monotone in general."""

    def position(self, x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """A uniform that `transport` would send to x, drawn at random where there are several."""

    def nodes_around(
        self, x: Float[Tensor, "*B"], nodes: int
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B S"], Int[Tensor, "*B"]]:
        """log q(x), one point in each of S strata with x in its own, and which that is."""

    def select(self, index: Int[Tensor, " P"]) -> "Proposal":
        """The proposals of some conditionals of a flat batch."""

    def flatten(self) -> "Proposal":
        """One batch axis."""


def nodes_around(
    proposal: Proposal, x: Float[Tensor, "*B"], nodes: int
) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B S"], Int[Tensor, "*B"]]:
    """What `Proposal.nodes_around` asks for, from its other methods."""
    log_q = proposal.log_prob(x[..., None])[..., 0]
    with torch.no_grad():
        y = proposal.transport(stratified_uniforms(proposal.batch, nodes))
        own = (proposal.position(x) * nodes).long().clamp(0, nodes - 1)
        return log_q, y.scatter(-1, own[..., None], x[..., None]), own


class GaussianMixture:
    """A mixture of K Gaussians for each conditional of a batch."""

    def __init__(
        self,
        logits: Float[Tensor, "*B K"],
        locs: Float[Tensor, "*B K"],
        scales: Float[Tensor, "*B K"],
    ) -> None:
        self.logits, self.locs, self.scales = logits, locs, scales

    @cached_property
    def log_weights(self) -> Float[Tensor, "*B K"]:
        """Normalised."""
        return self.logits.log_softmax(-1)

    @property
    def batch(self) -> Float[Tensor, "*B"]:
        """A tensor of the batch's shape, type and device."""
        return self.locs[..., 0]

    def _standardise(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S K"]:
        return (x[..., None] - self.locs[..., None, :]) / self.scales[..., None, :]

    def _joint_log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S K"]:
        constant = self.log_weights - self.scales.log() - LOG_ROOT_2PI
        return constant[..., None, :] - 0.5 * self._standardise(x).square()

    def log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Log density at each node."""
        if fuses_mixture(x, self.locs.shape[-1], x.shape[-1]):
            return self._fused_log_prob(x)
        return self._joint_log_prob(x).logsumexp(-1)

    def moments(self) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        """Mean and deviation."""
        weights = self.logits.softmax(-1)  # not from the cache, which knows whether gradients flow
        mean = (weights * self.locs).sum(-1)
        variance = weights * (self.scales.square() + (self.locs - mean[..., None]).square())
        return mean, variance.sum(-1).sqrt()

    def density(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Density at each node: half the work of its logarithm, where a tail may round to zero."""
        if fuses_mixture(x, self.locs.shape[-1], x.shape[-1]):
            return self._fused_log_prob(x).exp()
        heights = (self.log_weights - self.scales.log() - LOG_ROOT_2PI).exp()
        bells = self._standardise(x).square().mul_(-0.5).exp_()
        return bells.mul_(heights[..., None, :]).sum(-1)

    def cdf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying below each node."""
        below = normal_cdf(self._standardise(x))
        return (self.log_weights.exp()[..., None, :] * below).sum(-1)

    def sf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying above each node, with all its digits in the upper tail."""
        above = normal_cdf(-self._standardise(x))
        return (self.log_weights.exp()[..., None, :] * above).sum(-1)

    def mirrored(self) -> "GaussianMixture":
        """The distribution of −x."""
        return GaussianMixture(self.logits, -self.locs, self.scales)

    def icdf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Quantiles, to the last bits of the type."""
        weights = self.log_weights.exp()
        return invert_mixture_cdf(u, weights, self.locs, self.scales)

    def transport(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Component by cumulative weight, then the normal quantile of the remainder."""
        if fuses_mixture(u, self.locs.shape[-1], u.shape[-1]):
            from aem.kernels import mixture

            drawn = mixture.transport(u.reshape(-1, u.shape[-1]), *self._flat())
            return drawn.view(u.shape)
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
        standardised: Tensor = torch.special.ndtri(v)
        return locs + scales * standardised

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
        return ((start + weight * normal_cdf(standardised)) / ends[..., -1:])[..., 0]

    def nodes_around(
        self, x: Float[Tensor, "*B"], nodes: int
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B S"], Int[Tensor, "*B"]]:
        """log q(x), one point in each of S strata with x in its own, and which that is."""
        if not fuses_mixture(x, self.locs.shape[-1], nodes):
            return nodes_around(self, x, nodes)
        from aem.kernels.mixture import FusedMixture

        log_q, points, own = applied(FusedMixture, x.reshape(-1), *self._flat(), nodes)
        return log_q.view(x.shape), points.view(*x.shape, nodes), own.view(x.shape)

    def _flat(self) -> list[Float[Tensor, "N K"]]:
        """Logits, locations and scales of all conditionals, as the kernels read them."""
        return [t.reshape(-1, t.shape[-1]) for t in (self.logits, self.locs, self.scales)]

    def _fused_log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """By a kernel: with a gradient at one node, without at many."""
        from aem.kernels import mixture

        learning = torch.is_grad_enabled() and self.locs.requires_grad
        if not learning:
            return mixture.log_prob_at(x.reshape(-1, x.shape[-1]), *self._flat()).view(x.shape)
        if x.shape[-1] != 1:
            return self._joint_log_prob(x).logsumexp(-1)
        log_q: Tensor = applied(mixture.FusedLogProb, x.reshape(-1), *self._flat())
        return log_q.view(x.shape)

    def select(self, index: Int[Tensor, " P"]) -> "GaussianMixture":
        """The proposals of some conditionals of a flat batch."""
        # By the logits: normalising weights again would change their last bits.
        return GaussianMixture(self.logits[index], self.locs[index], self.scales[index])

    def flatten(self) -> "GaussianMixture":
        """One batch axis."""
        k = self.locs.shape[-1]
        parts = (self.logits, self.locs, self.scales)
        return GaussianMixture(*(t.reshape(-1, k) for t in parts))

    def mean(self) -> Float[Tensor, "*B"]:
        """The mean of each mixture."""
        return (self.log_weights.exp() * self.locs).sum(-1)


class FixedUniform:
    """The same uniform on [low, high] whatever the row; the bounds are the user's."""

    def __init__(self, low: Float[Tensor, "*B"], high: Float[Tensor, "*B"]) -> None:
        self.low, self.high = low, high

    @property
    def batch(self) -> Float[Tensor, "*B"]:
        """A tensor of the batch's shape, type and device."""
        return self.low

    def log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """−log width inside, −inf outside."""
        low, high = self.low[..., None], self.high[..., None]
        inside = (x >= low) & (x <= high)
        return torch.where(inside, -(high - low).log(), -torch.inf)

    def cdf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying below each node."""
        low, high = self.low[..., None], self.high[..., None]
        return ((x - low) / (high - low)).clamp(0, 1)

    def sf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying above each node."""
        low, high = self.low[..., None], self.high[..., None]
        return ((high - x) / (high - low)).clamp(0, 1)

    def icdf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Quantiles."""
        low, high = self.low[..., None], self.high[..., None]
        return low + u * (high - low)

    transport = icdf

    def nodes_around(
        self, x: Float[Tensor, "*B"], nodes: int
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B S"], Int[Tensor, "*B"]]:
        """log q(x), one point in each of S strata with x in its own, and which that is."""
        return nodes_around(self, x, nodes)

    def position(self, x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """The only uniform there is for x."""
        return self.cdf(x[..., None])[..., 0]

    def select(self, index: Int[Tensor, " P"]) -> "FixedUniform":
        """The proposals of some conditionals of a flat batch."""
        return FixedUniform(self.low[index], self.high[index])

    def flatten(self) -> "FixedUniform":
        """One batch axis."""
        return FixedUniform(self.low.reshape(-1), self.high.reshape(-1))


class MixtureHead(torch.nn.Module):
    """φ [*B, 3K] → a mixture: logits, locations, and scales through softplus above a minimum."""

    def __init__(self, components: int, min_scale: float) -> None:
        super().__init__()
        self.components, self.min_scale = components, min_scale
        self.size = 3 * components

    def initial_bias(self) -> Float[Tensor, " P"]:
        """Where training starts: components side by side over standardised data, scale about one half.

        Components that start on top of each other receive the same gradient and part slowly.
        """
        k = self.components
        locs = torch.special.ndtri((torch.arange(k) + 0.5) / k)
        raw_scale = math.log(math.expm1(0.5))
        return torch.cat((torch.zeros(k), locs, torch.full((k,), raw_scale)))

    def forward(self, phi: Float[Tensor, "*B P"], feature: int | None = None) -> GaussianMixture:
        """Build the proposal, in float32 at least: its tails do not survive bf16."""
        phi = phi.to(torch.promote_types(phi.dtype, torch.float32))
        logits, locs, raw_scales = phi.split(self.components, -1)
        return GaussianMixture(logits, locs, self.min_scale + softplus(raw_scales))


class UniformHead(torch.nn.Module):
    """No parameters: the proposal is the same for every row."""

    low: Tensor
    high: Tensor

    def __init__(self, low: Float[Tensor, " D"], high: Float[Tensor, " D"]) -> None:
        super().__init__()
        if not bool((low < high).all()):
            raise AemError("a uniform proposal needs bounds with low < high for every column")
        self.size = 0
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def initial_bias(self) -> Float[Tensor, " 0"]:
        """Nothing to start."""
        return torch.zeros(0)

    def forward(self, phi: Float[Tensor, "*B P"], feature: int | None = None) -> FixedUniform:
        """Spread the bounds over the batch: over [..., D], or one feature's over any shape."""
        low, high = (
            (self.low, self.high) if feature is None else (self.low[feature], self.high[feature])
        )
        return FixedUniform(low.expand(phi.shape[:-1]), high.expand(phi.shape[:-1]))
