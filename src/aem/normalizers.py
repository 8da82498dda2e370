"""log Z of each conditional, computed: quadrature in the proposal's quantile space.

With u = F_q(x), Z = ∫ q(x) w(x) dx = ∫₀¹ w(F_q⁻¹(u)) du: the proposal's own peaks and tails are
absorbed by the change of variables, and what is left to resolve is the weight alone.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aem.conditionals import Conditionals
from aem.errors import AemError
from aem.quadrature import NODES_PER_PANEL, Integrals, Panels, integrate


@dataclass(frozen=True)
class Quadrature:
    """How exactly, and with how much, a normaliser is computed."""

    tolerance: float = 1e-3  # nats a row, all conditionals together
    first_panels: int = 8
    max_nodes: int = 2**18  # a conditional
    memory: int = 2**28  # bytes of working memory

    def __post_init__(self) -> None:
        if not self.tolerance > 0:
            raise AemError(f"the tolerance must be positive, not {self.tolerance}")
        if self.first_panels < 1 or self.max_nodes < 1 or self.memory < 1:
            raise AemError("panels, nodes and memory of a quadrature must be positive")


@dataclass(frozen=True)
class Normalizer:
    """log Z of N conditionals, a bound on its error, and what it took."""

    log_z: Float[Tensor, " N"]
    error: Float[Tensor, " N"]
    nodes: Int[Tensor, " N"]
    converged: Bool[Tensor, " N"]
    panels: Panels | None = None


def nodes_within(memory: int, conditionals: Conditionals) -> int:
    """How many nodes fit into the memory: a few activations and mixture terms are alive at once."""
    hidden = conditionals.projected.shape[-1]
    mixture = getattr(conditionals.proposal, "locs", conditionals.projected[..., :1]).shape[-1]
    per_node = 8 * (4 * hidden + 8 * mixture + 8 * conditionals.frequencies.shape[-1])
    return max(memory // per_node, NODES_PER_PANEL)


def normalizer(
    conditionals: Conditionals,
    settings: Quadrature,
    *,
    tolerance: float,
    keep_panels: bool = False,
) -> Normalizer:
    """log Z of a flat batch of conditionals (float64), each to `tolerance` nats."""

    def weight(problem: Tensor, u: Tensor) -> Tensor:
        chosen = conditionals.select(problem)
        return chosen.log_weight(chosen.proposal.icdf(u)).exp()

    integrals: Integrals = integrate(
        weight,
        len(conditionals.projected),
        tolerance=tolerance,
        device=conditionals.projected.device,
        first_panels=settings.first_panels,
        max_nodes=settings.max_nodes,
        chunk=nodes_within(settings.memory, conditionals) // NODES_PER_PANEL,
        keep_panels=keep_panels,
    )
    # log(Z ± e) stays within −log(1 − e/Z) of log Z; an error as large as Z bounds nothing.
    relative = (integrals.error / integrals.value).clamp(max=1.0)
    return Normalizer(
        integrals.value.log(),
        -torch.log1p(-relative),
        integrals.nodes,
        integrals.converged,
        integrals.panels,
    )


def fixed_normalizer(conditionals: Conditionals, nodes: int) -> Float[Tensor, "*B"]:
    """log Z by the midpoints of S equal shares of the proposal: cheap, repeatable, no error bound.

    Good enough to compare models while training; never reported as a likelihood.
    """
    like = conditionals.proposal.batch
    u = (torch.arange(nodes, dtype=like.dtype, device=like.device) + 0.5) / nodes
    y = conditionals.proposal.transport(u.expand(*like.shape, nodes))
    return conditionals.log_weight(y).logsumexp(-1) - math.log(nodes)


def with_tolerance(settings: Quadrature, tolerance: float | None) -> Quadrature:
    """The settings, at another tolerance if one is given."""
    return settings if tolerance is None else replace(settings, tolerance=tolerance)
