"""Adaptive Gauss–Kronrod quadrature of many one-dimensional integrals at once.

An integral is that of a *weight* against a *measure* whose mass between any two points is known:
∫ v dm. A panel's value is its mass times the mean weight at its 15 nodes, so a constant weight is
integrated exactly however rough the measure, and only the weight's deviation from its mean,
h = m (v − v̄), has to be resolved.

Each problem starts with the same panels. A panel's error is estimated from h's components of high
degree (null rules): six numbers that all vanish for a resolved function and cannot all be small by
accident, as the usual single difference of two rules can, above all where an energy wiggles faster
than the nodes. To that come the mass the nodes did not see, times the weight's range in the panel,
and what may hide between nodes too far apart, of which the integrand itself must tell. What happens
between a panel's end and its outermost node no rule sees; there the weights of neighbours must meet.
A round halves the panels that err most: as few as leave the others with most of the variance the
problem may have. Panels whose nodes are too far apart are cut at once into as many as it takes.

Problems do not see each other: what is decided for one depends on its own numbers alone, so a row
gets the same answer in any batch, order or chunk. That is also what bounds the memory: when the
panels of a batch outgrow the budget, one half of its problems waits until the other is finished.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aem.nn.rowwise import MANY, linear

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

NODES = torch.tensor(
    [-x for x in _HALF_NODES] + [0.0] + list(reversed(_HALF_NODES)), dtype=torch.float64
)
KRONROD = torch.tensor(
    [*_HALF_KRONROD, _KRONROD_CENTRE, *reversed(_HALF_KRONROD)], dtype=torch.float64
)


def _null_rules(first: int) -> Tensor:
    """Weights [15, M] that turn node values into coefficients of degree `first` … 14.

    The polynomials are orthonormal under the rule itself, so noise of one size in the values gives
    every coefficient, and the integral (√2 times the coefficient of degree 0), the same spread.
    """
    root = KRONROD.sqrt()
    powers = torch.stack([NODES**k for k in range(len(NODES))], dim=1)
    orthonormal, _ = torch.linalg.qr(root[:, None] * powers)
    rules: Tensor = math.sqrt(2.0) * root[:, None] * orthonormal[:, first:]
    return rules


def _end_values() -> Tensor:
    """Weights [15, 2] that extrapolate node values to the panel's start and end."""
    powers = torch.stack([NODES**k for k in range(len(NODES))])
    ends = torch.stack(
        [torch.tensor([-1.0, 1.0], dtype=torch.float64) ** k for k in range(len(NODES))]
    )
    weights: Tensor = torch.linalg.solve(powers, ends)
    return weights


NULL_RULES = _null_rules(first=9)
END_VALUES = _end_values()
BLIND = 0.5 * (1 - _HALF_NODES[0])  # share of a panel beyond its outermost node, at either end
NODES_PER_PANEL = len(NODES)
SAFETY = 3.0
# What may hide between nodes is credited with this share of its mass, times the range of all weights
# the problem has shown so far, which counts as at least this share of the largest one. Chosen, as the
# safety, on trained models of the spirals and the diamond.
IN_DOUBT = 0.2
LEAST_RANGE = 0.05
PIECES = (2, 4, 8)  # tried before twice the last, which is the most a panel is cut into at once
TINY = torch.finfo(torch.float64).tiny
SPARED = 0.3  # share of the allowed variance that panels may keep in a round without being cut
OCTAVES = 40  # how finely panels are ranked by variance: by powers of two


@dataclass(frozen=True)
class NodeValues:
    """What an integrand says of P panels, at 15 nodes each."""

    weight: Float[Tensor, "P S"]
    measure: Float[Tensor, "P S"]  # its density in t
    mass: Float[Tensor, " P"]  # the measure of the whole panel
    hidden: Float[Tensor, " P"]  # of that, how much may be unlike what the nodes show


Integrand = Callable[[Tensor, Tensor, Tensor, Tensor], NodeValues]


@dataclass(frozen=True)
class Panels:
    """Pieces of an interval, each belonging to a problem: what was seen there and what it means.

    Sorted by problem, then by start.
    """

    problem: Int[Tensor, " P"]
    start: Float[Tensor, " P"]
    end: Float[Tensor, " P"]
    weight: Float[Tensor, "P S"]
    measure: Float[Tensor, "P S"]
    mass: Float[Tensor, " P"]
    integral: Float[Tensor, " P"]
    missed: Float[Tensor, " P"]  # mass the nodes did not see
    hidden: Float[Tensor, " P"]  # mass that may be unlike what the nodes show
    rough: Float[Tensor, " P"]  # variance, by the null rules

    def __len__(self) -> int:
        return len(self.problem)

    def take(self, which: Tensor) -> "Panels":
        """Return some of the panels.

        Parameters
        ----------
        which
            their numbers, or a mask.
        """
        return Panels(*(getattr(self, f.name)[which] for f in fields(self)))

    def sorted(self) -> "Panels":
        """Return the panels ordered by problem, then by start."""
        by_start = self.take(self.start.argsort())
        return by_start.take(by_start.problem.argsort(stable=True))

    @staticmethod
    def none(like: Tensor) -> "Panels":
        """Return no panels.

        Parameters
        ----------
        like
            a tensor of the type and device that panels have.
        """
        empty, nodes = like.new_zeros(0), like.new_zeros(0, len(NODES))
        return Panels(empty.long(), empty, empty, nodes, nodes, *[empty] * 5)

    @staticmethod
    def concatenate(parts: list["Panels"]) -> "Panels":
        """Return all panels of several lists.

        Parameters
        ----------
        parts
            lists of panels, whose problems are numbered alike.
        """
        return Panels(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Panels)))


@dataclass(frozen=True)
class Integrals:
    """Values of N integrals with their estimated absolute errors, and what they cost."""

    value: Float[Tensor, " N"]
    core: Float[Tensor, " N"]  # the part of the value that lies in the unit interval
    error: Float[Tensor, " N"]  # absolute
    nodes: Int[Tensor, " N"]
    converged: Bool[Tensor, " N"]  # to the relative tolerance
    panels: Panels | None  # if they were to be kept


@dataclass(frozen=True)
class Budget:
    """What an integration may use.

    Parameters
    ----------
    max_nodes
        nodes of one problem.
    chunk
        nodes that are evaluated together.
    panels
        panels that are held at a time.
    """

    max_nodes: int = 2**20
    chunk: int = 2**14
    panels: int = 2**17


def panel_nodes(start: Float[Tensor, " P"], end: Float[Tensor, " P"]) -> Float[Tensor, "P S"]:
    """Return the 15 nodes of each panel.

    Parameters
    ----------
    start
        where each panel begins.
    end
        where each panel ends.
    """
    half = 0.5 * (end - start)
    return (0.5 * (start + end))[:, None] + half[:, None] * NODES.to(start.device)


def evaluate_panels(
    integrand: Integrand, problem: Tensor, start: Tensor, end: Tensor, chunk: int
) -> Panels:
    """Integrate each panel by the 15-node rule, as many at a time as a chunk has nodes for.

    Parameters
    ----------
    integrand
        what `integrate` integrates.
    problem
        the number of the integral that each panel belongs to.
    start
        where each panel begins.
    end
        where each panel ends.
    chunk
        nodes that are evaluated together.
    """
    size = max(chunk // NODES_PER_PANEL, 1)
    parts = zip(problem.split(size), start.split(size), end.split(size), strict=True)
    return Panels.concatenate([_evaluate(integrand, p, a, b) for p, a, b in parts])


def _evaluate(integrand: Integrand, problem: Tensor, start: Tensor, end: Tensor) -> Panels:
    seen = integrand(problem, panel_nodes(start, end), start, end)
    half = 0.5 * (end - start)
    kronrod = KRONROD.to(half.device)
    seen_mass = half * (seen.measure * kronrod).sum(-1)
    # Nodes that see nothing of the measure speak for it all the same, each as much as the others.
    blind = seen_mass < torch.finfo(seen_mass.dtype).tiny
    mean = half * (seen.measure * seen.weight * kronrod).sum(-1) / seen_mass
    mean = torch.where(blind, seen.weight.mean(-1), mean)
    deviation = seen.measure * (seen.weight - mean[:, None])
    nulls = linear(deviation, NULL_RULES.T.to(half.device), block=MANY)
    rough = half.square() * nulls.square().sum(-1)
    missed = (seen_mass - seen.mass).abs()
    return Panels(
        problem,
        start,
        end,
        seen.weight,
        seen.measure,
        seen.mass,
        seen.mass * mean,
        missed,
        seen.hidden,
        rough,
    )


def integrate(
    integrand: Integrand,
    problems: int,
    *,
    tolerance: float,
    edges: Float[Tensor, " E"],
    budget: Budget,
    comparable: bool = True,
    keep_panels: bool = False,
    interpolating: bool = True,
) -> Integrals:
    """Integrate N non-negative weights over the panels between the edges, to a relative tolerance.

    Panels err independently, so their squared errors add up; `SAFETY` is what remains to be on the
    safe side.

    Parameters
    ----------
    integrand
        a function (problem [P], t [P, 15], start [P], end [P]) that tells what weight and measure
        of problem p are on a panel.
    problems
        N, the number of integrals.
    tolerance
        largest relative error of each.
    edges
        where the first panels meet, the same for all problems.
    budget
        the nodes and panels that may be used.
    comparable
        whether weights all over a problem have one scale: what was seen of them anywhere is then
        what may hide anywhere.
    keep_panels
        whether to return the panels.
    interpolating
        whether panels that are kept are refined until they hold not only the integral but, as
        polynomials, the integrand.
    """
    value, core, error = (edges.new_zeros(problems) for _ in range(3))
    nodes = torch.zeros(problems, dtype=torch.long, device=edges.device)
    kept: list[Panels] = []

    def evaluate(names: Tensor, local: Tensor, start: Tensor, end: Tensor) -> Panels:
        panels = evaluate_panels(
            lambda p, t, a, b: integrand(names[p], t, a, b), local, start, end, budget.chunk
        )
        nodes.index_add_(0, names[local], torch.full_like(local, NODES_PER_PANEL))
        return panels

    def refine(names: Tensor, panels: Panels) -> None:
        """Finish the problems with these names, whose panels count them from zero."""
        while len(names):
            total = _totals(panels.problem, panels.integral, len(names))
            doubtful = _doubts(panels, len(names), comparable)
            errors = doubtful + _shown(panels, interpolating=keep_panels and interpolating)
            variance = _totals(panels.problem, errors, len(names))
            allowed = (tolerance * total / SAFETY).square()
            split = _worst(panels.problem, errors, allowed)
            excess = (variance / allowed.clamp_min(TINY))[panels.problem]
            pieces = torch.where(2 * doubtful > errors, _resolving(panels, excess), 2) * split
            fresh = _totals(panels.problem, pieces, len(names))
            # Accurate, or the next round would overrun the nodes.
            overrun = nodes[names] + NODES_PER_PANEL * fresh > budget.max_nodes
            finished = (variance <= allowed) | overrun
            done = names[finished]
            value[done], error[done] = total[finished], SAFETY * variance[finished].sqrt()
            inside = (panels.start >= 0) & (panels.end <= 1)
            core[done] = _totals(panels.problem, panels.integral * inside, len(names))[finished]
            if keep_panels:
                closed = panels.take(finished[panels.problem])
                kept.append(replace(closed, problem=names[closed.problem]))
            pieces = pieces[~finished[panels.problem]]
            names, panels = _without(finished, names, panels)
            if len(panels) + int(pieces.sum()) > budget.panels and len(names) > 1:
                late = torch.arange(len(names), device=names.device) >= len(names) // 2
                refine(*_without(late, names, panels))
                names, panels = _without(~late, names, panels)
            elif len(names):
                parts = evaluate(names, *_pieces(panels, pieces))
                panels = Panels.concatenate([panels.take(pieces == 0), parts]).sorted()

    # Problems enter a batch at a time: their first panels alone would outgrow the budget otherwise.
    first = len(edges) - 1
    for names in torch.arange(problems, device=edges.device).split(max(budget.panels // first, 1)):
        local = torch.arange(len(names), device=edges.device).repeat_interleave(first)
        starts, ends = edges[:-1].repeat(len(names)), edges[1:].repeat(len(names))
        refine(names, evaluate(names, local, starts, ends))
    panels = None
    if keep_panels:
        panels = Panels.concatenate([Panels.none(edges), *kept]).sorted()
    return Integrals(value, core, error, nodes, error <= tolerance * value, panels)


def _doubts(panels: Panels, problems: int, comparable: bool) -> Float[Tensor, " P"]:
    """The squared error that may hide between the nodes of each panel."""
    low, high = panels.weight.aminmax(dim=-1)
    if not comparable:
        return (IN_DOUBT * panels.hidden * high).square()
    least, most = (low.new_zeros(problems) for _ in range(2))
    least = least.scatter_reduce(0, panels.problem, low, "amin", include_self=False)
    most = most.scatter_reduce(0, panels.problem, high, "amax", include_self=False)
    spread = torch.maximum(most - least, LEAST_RANGE * most)[panels.problem]
    return (IN_DOUBT * panels.hidden * spread).square()


def _shown(panels: Panels, *, interpolating: bool) -> Float[Tensor, " P"]:
    """The squared error that the nodes of each panel and its neighbours give away."""
    low, high = panels.weight.aminmax(dim=-1)
    unseen = panels.missed * (high if interpolating else high - low)
    return panels.rough + unseen.square() + _seams(panels)


def _resolving(panels: Panels, excess: Float[Tensor, " P"]) -> Int[Tensor, " P"]:
    """Into how many pieces to cut, at once, a panel whose nodes are too far apart.

    Where they are r times too far apart, the share 1 − 1/r of the panel's mass is hidden, and cut into
    k pieces a variance of (1 − k/r)² / k is left of (1 − 1/r)². As few as undo the excess, or resolve.
    """
    share = panels.hidden / panels.mass.clamp_min(TINY)
    pieces = torch.full_like(panels.problem, 2)
    for k in PIECES:
        left = (1 - k * (1 - share)).clamp_min(0).square() / k
        pieces = torch.where(left * excess > share.square(), 2 * k, pieces)
    return pieces.clamp(max=2 * PIECES[-1])


def _totals(problem: Tensor, amount: Tensor, problems: int) -> Tensor:
    return amount.new_zeros(problems).index_add_(0, problem, amount)


def _seams(panels: Panels) -> Float[Tensor, " P"]:
    """Variance from jumps and kinks beyond the outermost nodes, where neighbours do not meet."""
    ends = linear(panels.weight, END_VALUES.T.to(panels.weight.device), block=MANY)
    at_start, at_end = ends.unbind(-1)
    neighbours = panels.problem[1:] == panels.problem[:-1]
    jump = (at_start[1:] - at_end[:-1]).abs()
    largest = panels.weight.amax(-1)  # an extrapolation may overshoot, a weight does not
    jump = torch.minimum(jump, torch.maximum(largest[1:], largest[:-1]))
    gap = (
        neighbours * jump * torch.maximum(panels.measure[1:, 0], panels.measure[:-1, -1])
    ).square()
    none = gap.new_zeros(1)
    gaps = torch.cat((none, gap)) + torch.cat((gap, none))
    return (BLIND * (panels.end - panels.start)).square() * gaps


def _worst(
    problem: Int[Tensor, " P"], variance: Float[Tensor, " P"], allowed: Float[Tensor, " N"]
) -> Bool[Tensor, " P"]:
    """The panels to halve: all but the best, which together keep at most a share of the variance."""
    smallest = torch.finfo(allowed.dtype).tiny
    share = variance / allowed.clamp_min(smallest)[problem]
    octave = (-share.clamp_min(smallest).log2()).floor().clamp(0, OCTAVES - 1).long()
    slots = problem * OCTAVES + octave
    spectrum = _totals(slots, share, len(allowed) * OCTAVES).view(-1, OCTAVES)
    from_below = spectrum.flip(-1).cumsum(-1).flip(-1)  # what octave k and all smaller ones hold
    return (from_below > SPARED)[problem, octave]


def _without(gone: Bool[Tensor, " N"], names: Tensor, panels: Panels) -> tuple[Tensor, Panels]:
    """The problems that are not gone, counted anew, with their panels."""
    number = (~gone).long().cumsum(0) - 1
    rest = panels.take(~gone[panels.problem])
    return names[~gone], replace(rest, problem=number[rest.problem])


def _pieces(panels: Panels, pieces: Int[Tensor, " P"]) -> tuple[Tensor, Tensor, Tensor]:
    """Problem, start and end of the equal pieces that panels are cut into (none where zero)."""
    owner = torch.arange(len(panels), device=pieces.device).repeat_interleave(pieces)
    rank = torch.arange(len(owner), device=pieces.device) - (pieces.cumsum(0) - pieces)[owner]
    start, length = panels.start[owner], (panels.end - panels.start)[owner]
    first = start + length * (rank / pieces[owner])
    last = torch.where(
        rank + 1 == pieces[owner],
        panels.end[owner],
        start + length * ((rank + 1) / pieces[owner]),
    )
    return panels.problem[owner], first, last
