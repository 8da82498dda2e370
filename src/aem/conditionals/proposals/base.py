"""What a proposal q(x_d; φ_d) supplies: the tractable distribution each energy is measured with.

A *head* turns the numbers φ that the ARNN emits into a proposal for a batch of conditionals.
Shapes: a proposal has any batch shape `*B` (usually [B, D]); nodes come last, `[*B, S]`.

Stratified nodes cut [0, 1) into S equal strata and put one uniform in each.
"""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.base.randomness import uniforms

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
