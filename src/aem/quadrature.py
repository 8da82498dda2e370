"""Adaptive Gauss–Kronrod quadrature of many one-dimensional integrals at once.

Each problem starts with the same panels. A round evaluates every open panel at 15 nodes; the
difference between the Kronrod sum and the Gauss sum on 7 of the same nodes estimates its error.
Panels whose error the problem can afford are closed, the others are halved. Problems do not see
each other: what is decided for one depends on its own numbers alone, so a row gets the same answer
in any batch, order or chunk.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Nodes and weights on [−1, 1]; every second Kronrod node is a Gauss node.
_HALF_NODES = (
    0.991455371120812639206854697526329,
    0.949107912342758524526189684047851,
    0.864864423359769072789712788640926,
    0.741531185599394439863864773280788,
    0.586087235467691130294144691693013,
    0.405845151377397166906606412076961,
    0.207784955007898467600689403773245,
)
_HALF_KRONROD = (
    0.022935322010529224963732008058970,
    0.063092092629978553290700663189204,
    0.104790010322250183839876322541518,
    0.140653259715525918745189590510238,
    0.169004726639267902826583426598550,
    0.190350578064785409913256402421014,
    0.204432940075298892414161999234649,
)
_KRONROD_CENTRE = 0.209482141084727828012999174891714
_HALF_GAUSS = (
    0.0,
    0.129484966168869693270611432679082,
    0.0,
    0.279705391489276667901467771423780,
    0.0,
    0.381830050505118944950369775488975,
    0.0,
)
_GAUSS_CENTRE = 0.417959183673469387755102040816327

NODES = torch.tensor(
    [-x for x in _HALF_NODES] + [0.0] + list(reversed(_HALF_NODES)), dtype=torch.float64
)
KRONROD = torch.tensor(
    [*_HALF_KRONROD, _KRONROD_CENTRE, *reversed(_HALF_KRONROD)], dtype=torch.float64
)
GAUSS = torch.tensor([*_HALF_GAUSS, _GAUSS_CENTRE, *reversed(_HALF_GAUSS)], dtype=torch.float64)
NODES_PER_PANEL = len(NODES)

Integrand = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Panels:
    """Pieces of the unit interval, each belonging to a problem, with their integral and error."""

    problem: Int[Tensor, " P"]
    start: Float[Tensor, " P"]
    end: Float[Tensor, " P"]
    value: Float[Tensor, " P"]
    error: Float[Tensor, " P"]

    def take(self, which: Tensor) -> "Panels":
        """Some of the panels."""
        return Panels(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    @staticmethod
    def concatenate(parts: list["Panels"]) -> "Panels":
        """All panels of several lists."""
        fields = Panels.__dataclass_fields__
        return Panels(*(torch.cat([getattr(p, name) for p in parts]) for name in fields))


@dataclass(frozen=True)
class Integrals:
    """Values with their estimated absolute errors, and what they cost."""

    value: Float[Tensor, " N"]
    error: Float[Tensor, " N"]
    nodes: Int[Tensor, " N"]
    converged: Bool[Tensor, " N"]
    panels: Panels | None


def evaluate_panels(
    integrand: Integrand, problem: Tensor, start: Tensor, end: Tensor, chunk: int
) -> Panels:
    """Integrate each panel by the 15-node rule, a chunk of panels at a time."""
    values, errors = [], []
    nodes, kronrod = NODES.to(start.device), KRONROD.to(start.device)
    difference = kronrod - GAUSS.to(start.device)
    for p, a, b in zip(
        problem.split(chunk), start.split(chunk), end.split(chunk), strict=True
    ):
        half = 0.5 * (b - a)
        t = (0.5 * (a + b))[:, None] + half[:, None] * nodes
        f = integrand(p, t)
        values.append(half * (f @ kronrod))
        errors.append((half * (f @ difference)).abs())
    return Panels(problem, start, end, torch.cat(values), torch.cat(errors))


def integrate(
    integrand: Integrand,
    problems: int,
    *,
    tolerance: float,
    device: torch.device,
    first_panels: int,
    max_nodes: int,
    chunk: int,
    keep_panels: bool = False,
    interval: tuple[float, float] = (0.0, 1.0),
) -> Integrals:
    """Integrate N non-negative functions over an interval to a relative tolerance.

    `integrand(problem [P], t [P, 15])` evaluates problem p's function at its row of nodes. The error
    is the sum over panels, as if they all erred the same way: larger than the truth, on purpose.
    """
    edges = torch.linspace(*interval, first_panels + 1, dtype=torch.float64, device=device)
    problem = torch.arange(problems, device=device).repeat_interleave(first_panels)
    start, end = edges[:-1].repeat(problems), edges[1:].repeat(problems)

    def total(index: Tensor, amount: Tensor) -> Tensor:
        return amount.new_zeros(problems).index_add_(0, index, amount)

    closed_value = edges.new_zeros(problems)
    closed_error = edges.new_zeros(problems)
    nodes = torch.zeros(problems, dtype=torch.long, device=device)
    closed: list[Panels] = []
    while len(problem):
        panels = evaluate_panels(integrand, problem, start, end, chunk)
        open_panels = total(panels.problem, torch.ones_like(panels.value))
        nodes += NODES_PER_PANEL * open_panels.long()
        value = closed_value + total(panels.problem, panels.value)
        error = closed_error + total(panels.problem, panels.error)
        allowed = tolerance * value
        # A problem is finished when it is accurate, or when the next round could overrun its nodes.
        finished = (error <= allowed) | (nodes + 2 * NODES_PER_PANEL * open_panels > max_nodes)
        # Otherwise it closes the panels that together take at most half of what is still allowed.
        affordable = (0.5 * (allowed - closed_error) / open_panels.clamp_min(1))[panels.problem]
        close = finished[panels.problem] | (panels.error <= affordable)
        done, rest = panels.take(close), panels.take(~close)
        closed_value = closed_value + total(done.problem, done.value)
        closed_error = closed_error + total(done.problem, done.error)
        if keep_panels:
            closed.append(done)
        middle = 0.5 * (rest.start + rest.end)
        problem = rest.problem.repeat(2)
        start = torch.cat((rest.start, middle))
        end = torch.cat((middle, rest.end))
    kept = Panels.concatenate(closed) if keep_panels else None
    return Integrals(
        closed_value, closed_error, nodes, closed_error <= tolerance * closed_value, kept
    )
