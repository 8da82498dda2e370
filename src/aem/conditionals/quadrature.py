"""Adaptive Gauss–Kronrod quadrature of many one-dimensional integrals at once.

An integral is that of a *weight* against a *measure* whose mass between any two points is known:
∫ v dm. A panel's value is its mass times the mean weight at its 15 nodes, so a constant weight is
integrated exactly however rough the measure, and only the weight's deviation from its mean,
h = m (v − v̄), has to be resolved.

A panel's error is estimated from h's components of high degree (null rules): six numbers that all
vanish for a resolved function and cannot all be small by accident, as the usual single difference of
two rules can, above all where an energy wiggles faster than the nodes. The rule errs by what lies
beyond these degrees, so how fast they decay tells how much of them is left there (Berntsen and
Espelid 1991); where they do not decay, all is. To that come the mass the nodes did not see, times the
weight's range in the panel, and what may hide between nodes too far apart, of which the integrand
itself must tell. What happens between a panel's end and its outermost node no rule sees; there the
weights of neighbours must meet.

A round halves the panels that err most: as few as leave the others with most of the variance the
problem may have. Where nodes are too far apart, panels are cut at once into pieces that resolve, each
as long as the mass it holds allows: how much may hide in a piece is known before it is evaluated.

Problems do not see each other: what is decided for one depends on its own numbers alone, so a row
gets the same answer in any batch, order or chunk. That is also what bounds the memory: when the
panels of a batch outgrow the budget, one half of its problems waits until the other is finished.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import chain

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
# By how much components decay from degrees 9 … 11 to 12 … 14, in variance: taken for no less than this.
FASTEST_DECAY = 0.2
MOST_PIECES = 32  # that a panel is cut into at once
# Share of the allowed variance that one of them may hide: with few pieces it does not add up to much.
HIDDEN_SHARE = 0.03
TINY = torch.finfo(torch.float64).tiny
SPARED = 0.5  # share of the allowed variance that panels may keep in a round without being cut
OCTAVES = 40  # how finely panels are ranked by variance: by powers of two


@dataclass(frozen=True)
class NodeValues:
    """What an integrand says of P panels, at 15 nodes each."""

    weight: Float[Tensor, "P S"]
    measure: Float[Tensor, "P S"]  # its density in t
    mass: Float[Tensor, " P"]  # the measure of the whole panel
    hidden: Float[Tensor, " P"]  # of that, how much may be unlike what the nodes show


Integrand = Callable[[Tensor, Tensor, Tensor, Tensor], NodeValues]
Foresight = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Panels:
    """Pieces of an interval, each belonging to a problem: what was seen there and what it means.

    Sorted by problem, then by start.
    """

    problem: Int[Tensor, " P"]
    start: Float[Tensor, " P"]
    end: Float[Tensor, " P"]
    mass: Float[Tensor, " P"]
    integral: Float[Tensor, " P"]
    missed: Float[Tensor, " P"]  # mass the nodes did not see
    hidden: Float[Tensor, " P"]  # mass that may be unlike what the nodes show
    rough: Float[Tensor, " P"]  # variance, by the null rules
    low: Float[Tensor, " P"]  # the smallest weight seen
    high: Float[Tensor, " P"]  # the largest
    weight_ends: Float[Tensor, "P 2"]  # extrapolated to start and end
    measure_ends: Float[Tensor, "P 2"]  # at the first node and the last
    weight: Float[Tensor, "P S"]  # at all nodes, where panels are to be kept; else S is zero
    measure: Float[Tensor, "P S"]

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

    def replaced(self, which: Int[Tensor, " F"], by: "Panels") -> "Panels":
        """Return all panels, some of them replaced.

        Parameters
        ----------
        which
            numbers of those that are replaced.
        by
            what they are replaced by, in the same order.
        """
        parts = ((getattr(self, f.name), getattr(by, f.name)) for f in fields(self))
        return Panels(*(old.index_copy(0, which, new) for old, new in parts))

    def sorted(self) -> "Panels":
        """Return the panels ordered by problem, then by start."""
        by_start = self.start.argsort()
        return self.take(by_start[self.problem[by_start].argsort(stable=True)])

    @staticmethod
    def none(like: Tensor) -> "Panels":
        """Return no panels.

        Parameters
        ----------
        like
            a tensor of the type and device that panels have.
        """
        empty, ends = like.new_zeros(0), like.new_zeros(0, 2)
        nodes = like.new_zeros(0, len(NODES))
        numbers = [empty] * 9, [ends] * 2, [nodes] * 2
        return Panels(empty.long(), *chain.from_iterable(numbers))

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


def panel_nodes(start: Float[Tensor, "*P"], end: Float[Tensor, "*P"]) -> Float[Tensor, "*P S"]:
    """Return the 15 nodes of each panel.

    Parameters
    ----------
    start
        where each panel begins.
    end
        where each panel ends.
    """
    middle, half = 0.5 * (start + end), 0.5 * (end - start)
    return middle[..., None] + half[..., None] * NODES.to(start.device)


def evaluate_panels(
    integrand: Integrand,
    problem: Tensor,
    start: Tensor,
    end: Tensor,
    chunk: int,
    *,
    keep_nodes: bool = True,
    interpolating: bool = False,
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
    keep_nodes
        whether to keep what was seen at each node.
    interpolating
        whether errors are those of the integrand as polynomials, not of its integrals.
    """
    size = max(chunk // NODES_PER_PANEL, 1)
    parts = zip(problem.split(size), start.split(size), end.split(size), strict=True)
    return Panels.concatenate(
        [_evaluate(integrand, p, a, b, keep_nodes, interpolating) for p, a, b in parts]
    )


def _evaluate(
    integrand: Integrand,
    problem: Tensor,
    start: Tensor,
    end: Tensor,
    keep_nodes: bool,
    interpolating: bool,
) -> Panels:
    seen = integrand(problem, panel_nodes(start, end), start, end)
    half, weights = 0.5 * (end - start), KRONROD.to(start.device)
    seen_mass = half * (seen.measure * weights).sum(-1)
    # Nodes that see nothing of the measure speak for it all the same, each as much as the others.
    blind = seen_mass < torch.finfo(seen_mass.dtype).tiny
    mean = half * (seen.measure * seen.weight * weights).sum(-1) / seen_mass
    mean = torch.where(blind, seen.weight.mean(-1), mean)
    deviation = seen.measure * (seen.weight - mean[:, None])
    low, high = seen.weight.aminmax(dim=-1)
    kept = slice(None) if keep_nodes else slice(0)
    return Panels(
        problem,
        start,
        end,
        seen.mass,
        seen.mass * mean,
        (seen_mass - seen.mass).abs(),
        seen.hidden,
        half.square() * _roughness(deviation, interpolating=interpolating),
        low,
        high,
        linear(seen.weight, END_VALUES.T.to(half.device), block=MANY),
        seen.measure[:, :: NODES_PER_PANEL - 1],
        seen.weight[:, kept],
        seen.measure[:, kept],
    )


def _roughness(values: Float[Tensor, "P S"], *, interpolating: bool) -> Float[Tensor, " P"]:
    """The variance of functions on [−1, 1] that their integrals, or polynomials, may lack."""
    squares = linear(values, NULL_RULES.T.to(values.device), block=MANY).square()
    if interpolating:  # a polynomial has all it lacks from degree 9 on, its integral hardly any
        return squares.sum(-1)
    lower, upper = squares[:, :3].mean(-1), squares[:, 3:].mean(-1)
    decay = (upper / lower.clamp_min(TINY)).clamp(FASTEST_DECAY, 1.0)
    return 0.5 * (lower + upper) * decay


def integrate(
    integrand: Integrand,
    problems: int,
    *,
    tolerance: float,
    edges: Float[Tensor, "*N E"],
    budget: Budget,
    comparable: bool = True,
    keep_panels: bool = False,
    interpolating: bool = True,
    foresee: Foresight | None = None,
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
        where the first panels meet, the same for all problems, or different ones for each; two that
        are equal have no panel between them.
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
    foresee
        a function (problem [P], edges [P, 33]) that tells, before anything is evaluated, how much
        may hide in each half between the first edge and the last, in each quarter, and so on:
        [P, 2 + 4 + 8 + 16 + 32]. Without it panels are only ever halved.
    """
    interpolating = interpolating and keep_panels
    value, core, error = (edges.new_zeros(problems) for _ in range(3))
    nodes = torch.zeros(problems, dtype=torch.long, device=edges.device)
    kept: list[Panels] = []

    def evaluate(names: Tensor, local: Tensor, start: Tensor, end: Tensor) -> Panels:
        panels = evaluate_panels(
            lambda p, t, a, b: integrand(names[p], t, a, b),
            local, start, end, budget.chunk, keep_nodes=keep_panels, interpolating=interpolating,
        )  # fmt: skip
        nodes.index_add_(0, names[local], torch.full_like(local, NODES_PER_PANEL))
        return panels

    def refine(names: Tensor, panels: Panels) -> None:
        """Finish the problems with these names, whose panels count them from zero."""
        while len(names):
            total = _totals(panels.problem, panels.integral, len(names))
            spread = _spread(panels, len(names), comparable)
            doubtful = (IN_DOUBT * panels.hidden * spread).square()
            errors = doubtful + _shown(panels, interpolating=interpolating)
            variance = _totals(panels.problem, errors, len(names))
            allowed = (tolerance * total / SAFETY).square()
            split = _worst(panels.problem, errors, allowed)
            pieces = _halves(split)
            hiding = (split & (2 * doubtful > errors)).nonzero()[:, 0]
            if foresee is not None:
                some = panels.problem[hiding]
                size = max(budget.chunk // (MOST_PIECES + 1), 1)
                places = _parts(panels, hiding).split(size)
                looks = zip(names[some].split(size), places, strict=True)
                expected = torch.cat([foresee(who, where) for who, where in looks])
                few = HIDDEN_SHARE * allowed[some] / spread[hiding].square().clamp_min(TINY)
                pieces[hiding] = _resolving(expected, few.sqrt() / IN_DOUBT)
            fresh = _totals(panels.problem, (pieces > 0).sum(-1) * split, len(names))
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
            cuts = _cuts(panels, pieces)
            if len(cuts.panel) > budget.panels and len(names) > 1:
                late = torch.arange(len(names), device=names.device) >= len(names) // 2
                refine(*_without(late, names, panels))
                names, panels = _without(~late, names, panels)
            elif len(names):
                panels, new = panels.take(cuts.panel), cuts.new
                parts = evaluate(names, panels.problem[new], cuts.start[new], cuts.end[new])
                panels = panels.replaced(new, parts)

    # Problems enter a batch at a time: their first panels alone would outgrow the budget otherwise.
    edges = edges.expand(problems, -1)
    most = max(budget.panels // max(edges.shape[-1] - 1, 1), 1)
    for names in torch.arange(problems, device=edges.device).split(most):
        starts, ends = edges[names, :-1], edges[names, 1:]
        local, place = (starts < ends).nonzero(as_tuple=True)
        refine(names, evaluate(names, local, starts[local, place], ends[local, place]))
    panels = None
    if keep_panels:
        panels = Panels.concatenate([Panels.none(edges), *kept]).sorted()
    return Integrals(value, core, error, nodes, error <= tolerance * value, panels)


def _spread(panels: Panels, problems: int, comparable: bool) -> Float[Tensor, " P"]:
    """How far what hides between the nodes of each panel may differ from what they show."""
    if not comparable:
        return panels.high
    least, most = (panels.low.new_zeros(problems) for _ in range(2))
    least = least.scatter_reduce(0, panels.problem, panels.low, "amin", include_self=False)
    most = most.scatter_reduce(0, panels.problem, panels.high, "amax", include_self=False)
    return torch.maximum(most - least, LEAST_RANGE * most)[panels.problem]


def _shown(panels: Panels, *, interpolating: bool) -> Float[Tensor, " P"]:
    """The squared error that the nodes of each panel and its neighbours give away."""
    unseen = panels.missed * (panels.high if interpolating else panels.high - panels.low)
    return panels.rough + unseen.square() + _seams(panels)


def _halves(split: Bool[Tensor, " P"]) -> Int[Tensor, "P M"]:
    """How long a piece of each panel begins at each of its parts: a half, the whole, or none."""
    pieces = torch.zeros(len(split), MOST_PIECES, dtype=torch.long, device=split.device)
    half = MOST_PIECES // 2
    pieces[:, 0] = torch.where(split, half, MOST_PIECES)
    pieces[:, half] = split * half
    return pieces


def _parts(panels: Panels, which: Int[Tensor, " F"]) -> Float[Tensor, "F E"]:
    """Where the smallest pieces of some panels would meet."""
    shares = torch.arange(MOST_PIECES + 1, device=which.device) / MOST_PIECES
    start, end = panels.start[which, None], panels.end[which, None]
    return torch.where(shares == 1, end, start + (end - start) * shares)


def _resolving(hidden: Float[Tensor, "F H"], most: Float[Tensor, " F"]) -> Int[Tensor, "F M"]:
    """How long a piece to begin at each part: the longest ones that hide no more than they may."""
    pieces = torch.zeros(len(hidden), MOST_PIECES, dtype=torch.long, device=hidden.device)
    open_ = torch.ones(len(hidden), 1, dtype=torch.bool, device=hidden.device)
    count, first = 2, 0
    while count <= MOST_PIECES:
        length = MOST_PIECES // count
        open_ = open_.repeat_interleave(2, dim=1)
        little = hidden[:, first : first + count] <= most[:, None]
        chosen = open_ & (little | (length == 1))
        pieces[:, ::length] += length * chosen
        open_ = open_ & ~chosen
        count, first = 2 * count, first + count
    return pieces


@dataclass(frozen=True)
class _Cuts:
    """Panels after a round of cutting, in order: whole ones and pieces."""

    panel: Int[Tensor, " C"]  # that each is, or is cut from
    start: Float[Tensor, " C"]
    end: Float[Tensor, " C"]
    new: Int[Tensor, " F"]  # numbers of the pieces


def _cuts(panels: Panels, pieces: Int[Tensor, "P M"]) -> _Cuts:
    """Cut panels into the pieces that begin at their parts."""
    panel, place = pieces.nonzero(as_tuple=True)
    length = pieces[panel, place]
    start, end = panels.start[panel], panels.end[panel]
    first = start + (end - start) * (place / MOST_PIECES)
    last = start + (end - start) * ((place + length) / MOST_PIECES)
    last = torch.where(place + length == MOST_PIECES, end, last)
    return _Cuts(panel, first, last, (length < MOST_PIECES).nonzero()[:, 0])


def _totals(problem: Tensor, amount: Tensor, problems: int) -> Tensor:
    return amount.new_zeros(problems).index_add_(0, problem, amount)


def _seams(panels: Panels) -> Float[Tensor, " P"]:
    """Variance from jumps and kinks beyond the outermost nodes, where neighbours do not meet."""
    (at_start, at_end), (first, last) = (
        ends.unbind(-1) for ends in (panels.weight_ends, panels.measure_ends)
    )
    neighbours = panels.problem[1:] == panels.problem[:-1]
    jump = (at_start[1:] - at_end[:-1]).abs()
    # An extrapolation may overshoot, a weight does not.
    jump = torch.minimum(jump, torch.maximum(panels.high[1:], panels.high[:-1]))
    gap = (neighbours * jump * torch.maximum(first[1:], last[:-1])).square()
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
    rest = panels.take((~gone[panels.problem]).nonzero()[:, 0])
    return names[~gone], replace(rest, problem=number[rest.problem])
