"""Mixtures of Gaussians, one for each conditional of a batch.

To spare an inverse CDF stratified uniforms go through the components in order: the component whose
share of [0, 1) holds u, then the normal quantile of the remainder. That is an exact sampler, and
`position` is its inverse.
"""

import math
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.base.randomness import uniforms
from aem.conditionals.proposals.base import LOG_ROOT_2PI, nodes_around
from aem.conditionals.proposals.quantiles import invert_mixture_cdf, normal_cdf
from aem.nn.functions import softplus
from aem.nn.kernels import applied, fuses_mixture


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
            from aem.nn.kernels import mixture

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
        from aem.nn.kernels.mixture import FusedMixture

        log_q, points, own = applied(FusedMixture, x.reshape(-1), *self._flat(), nodes)
        return log_q.view(x.shape), points.view(*x.shape, nodes), own.view(x.shape)

    def _flat(self) -> list[Float[Tensor, "N K"]]:
        """Logits, locations and scales of all conditionals, as the kernels read them."""
        return [t.reshape(-1, t.shape[-1]) for t in (self.logits, self.locs, self.scales)]

    def _fused_log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """By a kernel: with a gradient at one node, without at many."""
        from aem.nn.kernels import mixture

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
