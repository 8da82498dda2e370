"""Coordinates in which a conditional is integrated: t on a finite interval instead of x on the line.

An energy is smooth in x, at the scale of its frequencies; where its mass lies the proposal knows. So
x runs linearly in t between a few of the proposal's quantiles, the *ladder*, and each chart names a
*measure* whose mass between any two points is known exactly, for the quadrature to lean on.

*Line* (relative energies): the measure is the proposal, Z = ∫ w(x) q(x) dx with w ≤ 1. Whatever of q
falls between the nodes is known from its CDF. The ladder ends at quantiles of 1e-30: as w ≥ e^−32,
what lies beyond is no share of Z.

*Bounds* (a uniform proposal, either form): its support is all there is, the density is zero beyond it
by definition, and t runs evenly from one bound to the other.

*Tails* (the paper's literal energy): p̃ does not follow the proposal, and mass may lie where the
proposal never draws. There t ∈ [0, 1] covers its quantiles from ε to 1 − ε, the half-lines beyond are
integrated through x = edge ± r v / (1 − v) with v = −t on the left and v = t − 1 on the right, and
the measure is length in t.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aem.conditionals.batch import Conditionals
from aem.conditionals.ladder import Ladder
from aem.conditionals.proposals.base import Measure
from aem.conditionals.quadrature import NODES, panel_nodes

REACH_OF_PROPOSAL = 1e-6  # ε: a quantile no importance sampler will draw beyond
# Quantiles where the line ends and where its outer panels meet; the others lie evenly between the last.
OUTERMOST = (1e-30, 1e-5, 0.02)
# A tail is one panel instead of two where it falls about as a Gaussian's does: at least this share of
# it lies beyond the middle of the second and the third of these quantiles, and the first is less than
# so many times as far from the second as that is from the third.
LIGHT, NOT_FAR = 0.01, 5.0
TAIL_PANELS = 2
# Nodes further apart in x than this, in units of 1/ω for the energy's highest frequency ω, may have
# structure between them. The value was chosen on trained models of the spirals and the diamond.
RESOLVED = 2.0
SMOOTH = 3.0  # the frequency a network without Fourier features is credited with
# Where a tail is judged, in spreads of the proposal from its edge: beyond every kink of a ReLU network.
FAR = tuple(2.0**k for k in (22, 23.1, 24.3, 25.6, 27, 30))
LONGEST_DECAY = 2.0**20


@dataclass(frozen=True)
class OnPanels:
    """What coordinates know of one panel of each of N conditionals."""

    x: Float[Tensor, "N S"]  # at the nodes
    measure: Float[Tensor, "N S"]
    mass: Float[Tensor, " N"]
    unresolved: Float[Tensor, " N"]  # share of it


@dataclass(frozen=True)
class Coordinates(ABC):
    """x ↔ t for a flat batch of conditionals, and p̃(x) dx as a weight against a known measure.

    `coordinates_for` chooses between the three kinds there are.

    Parameters
    ----------
    conditionals
        a flat batch, whose coordinates these are.
    """

    conditionals: Conditionals

    comparable: ClassVar[bool] = True  # whether weights at different places are of one scale

    @abstractmethod
    def edges(self) -> Float[Tensor, "*N E"]:
        """Return the t where the first panels meet, the same for all conditionals or for each."""

    @abstractmethod
    def point(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return x at t, which increases with t.

        Parameters
        ----------
        t
            S coordinates of each conditional.
        """

    @abstractmethod
    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return t at x.

        Parameters
        ----------
        x
            S standardised values of each conditional.
        """

    def log_weight(self, t: Float[Tensor, "N S"], x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return the log of p̃(x) dx over the measure.

        Parameters
        ----------
        t
            S coordinates of each conditional.
        x
            the values at t.
        """
        return self.conditionals.log_weight(x)

    def measure(self, t: Float[Tensor, "N S"], x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return the density of the measure in t.

        Parameters
        ----------
        t
            S coordinates of each conditional.
        x
            the values at t.
        """
        return torch.ones_like(t)

    def mass(self, start: Float[Tensor, " N"], end: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """Return the measure between two coordinates of each conditional.

        Parameters
        ----------
        start
            the lower coordinate.
        end
            the upper coordinate.
        """
        return end - start

    def masses(self, edges: Float[Tensor, "N E"]) -> Float[Tensor, "N F"]:
        """Return the measure between neighbours of a row of coordinates of each conditional.

        Parameters
        ----------
        edges
            E rising coordinates; there is one mass less.
        """
        return edges.diff(dim=-1)

    def on_panels(
        self, t: Float[Tensor, "N S"], start: Float[Tensor, " N"], end: Float[Tensor, " N"]
    ) -> "OnPanels":
        """Return what a panel of each conditional is, but for the weights.

        Parameters
        ----------
        t
            the panel's nodes.
        start
            where it begins.
        end
            where it ends.
        """
        x = self.point(t)
        return OnPanels(
            x, self.measure(t, x), self.mass(start, end), unresolved(self, self._gaps(x))
        )

    def foresee(self, edges: Float[Tensor, "N E"]) -> Float[Tensor, "N H"]:
        """Return how much may hide between coordinates, before energies are evaluated there.

        Parameters
        ----------
        edges
            E rising coordinates at equal steps, one more than a power of two.

        Returns
        -------
        tensor [N, 2 + 4 + … + E − 1]
            mass that may hide in each of two pieces, then in each of four, and so on.
        """
        steps = self.masses(edges)
        hidden, count = [], 2
        while count <= steps.shape[1]:
            mass = steps.unflatten(1, (count, -1)).sum(-1)
            hidden.append(mass * self._hiding(edges[:, :: steps.shape[1] // count]))
            count *= 2
        return torch.cat(hidden, 1)

    def _hiding(self, edges: Float[Tensor, "N E"]) -> Float[Tensor, "N F"]:
        """The share of the mass between neighbouring edges that may hide between nodes."""
        t = panel_nodes(edges[:, :-1], edges[:, 1:])
        return unresolved(self, self._gaps(self.point(t.flatten(1)).view(t.shape)))

    def _gaps(self, x: Float[Tensor, "N *P S"]) -> Float[Tensor, "N *P G"]:
        """Distances between neighbouring nodes; far out the energy is a constant."""
        reach = self.conditionals.reach(x.dtype)
        return x.clamp(-reach, reach).diff(dim=-1)

    def select(self, index: Int[Tensor, " P"]) -> Self:
        """Return the coordinates of some conditionals.

        Parameters
        ----------
        index
            numbers of the conditionals; one may be named more than once.
        """
        return replace(self, conditionals=self.conditionals.select(index))

    def joined(self, conditionals: Conditionals, parts: "Sequence[Coordinates]") -> "Coordinates":
        """Return the coordinates of conditionals that were treated a share at a time.

        Parameters
        ----------
        conditionals
            all conditionals, in the order of the shares.
        parts
            the coordinates of each share.
        """
        return replace(self, conditionals=conditionals)


def coordinates_for(conditionals: Conditionals, panels: int = 6) -> Coordinates:
    """Return the coordinates that cover all the mass a conditional can have.

    Parameters
    ----------
    conditionals
        a flat batch.
    panels
        how many panels a quadrature starts with.
    """
    if conditionals.proposal.bounded:
        return BoundedChart(conditionals, panels)
    if conditionals.form == "relative":
        return LineChart.along(conditionals, panels)
    return TailedCoordinates.around(conditionals, panels)


def unresolved(coordinates: Coordinates, gaps: Float[Tensor, "*N G"]) -> Float[Tensor, "*N"]:
    """Return how much of what lies between rows of nodes the energy may hide there, from 0 to 1.

    An energy cannot vary faster than its highest frequency. Where neighbouring nodes lie further
    apart in x than it can resolve, as across the gap between two modes of the proposal, it may do
    anything in between without a node noticing.

    Parameters
    ----------
    coordinates
        the coordinates of the conditionals.
    gaps
        distances in x between neighbouring nodes of each row.
    """
    highest = coordinates.conditionals.highest_frequency.clamp_min(SMOOTH)
    resolved = (RESOLVED / highest).view(-1, *[1] * (gaps.ndim - 1))
    hidden, length = (gaps - resolved).clamp_min(0).sum(-1), gaps.sum(-1)
    return hidden / length.clamp_min(torch.finfo(gaps.dtype).tiny)


def _levels(lowest: float, pieces: int, like: Tensor) -> Float[Tensor, " R"]:
    """Equally spaced from a lowest level to its mirror image."""
    return torch.linspace(lowest, 1 - lowest, pieces + 1, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class BoundedChart(Coordinates):
    """t = F_q(x), for a proposal with bounds; the measure is the proposal, whose mass t is.

    Parameters
    ----------
    panels
        how many panels a quadrature starts with.
    conditionals
        a flat batch whose proposals have bounds.
    """

    panels: int

    def edges(self) -> Float[Tensor, " E"]:
        """Where the first panels meet."""
        like = self.conditionals.projected
        return torch.linspace(0, 1, self.panels + 1, dtype=torch.float64, device=like.device)

    def point(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """x at t."""
        return self.conditionals.proposal.icdf(t)

    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """t at x."""
        return self.conditionals.proposal.cdf(x)


@dataclass(frozen=True)
class LadderCoordinates(Coordinates):
    """Coordinates in which t runs evenly from rung to rung of a ladder of the proposal's quantiles.

    Parameters
    ----------
    ladder
        x as a piecewise linear function of t in [0, 1].
    """

    ladder: Ladder

    def edges(self) -> Float[Tensor, " E"]:
        """Where the first panels meet."""
        return self.ladder.edges()

    def point(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """x at t."""
        return self.ladder.point(t)

    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """t at x."""
        return self.ladder.coordinate(x)

    def select(self, index: Int[Tensor, " P"]) -> Self:
        """The coordinates of some conditionals."""
        return replace(super().select(index), ladder=self.ladder.select(index))

    def joined(self, conditionals: Conditionals, parts: Sequence[Coordinates]) -> Coordinates:
        """Those of conditionals whose parts, in their order, have such coordinates as these."""
        ladders = [part.ladder for part in parts if isinstance(part, LadderCoordinates)]
        return replace(self, conditionals=conditionals, ladder=Ladder.joined(ladders))


@dataclass(frozen=True)
class LineChart(LadderCoordinates):
    """x between quantiles of the proposal; the measure is the proposal.

    Parameters
    ----------
    conditionals
        a flat batch with relative energies.
    ladder
        x as a piecewise linear function of t.
    light
        whether the lower tail, and the upper one, is light enough for a single first panel.
    single
        stands for the proposal, in single precision, where nothing but a normaliser is wanted.
    """

    light: Bool[Tensor, "N 2"]
    single: Measure | None = None

    @classmethod
    def along(cls, conditionals: Conditionals, panels: int) -> "LineChart":
        """Make the coordinates of proposals without bounds.

        Parameters
        ----------
        conditionals
            a flat batch with relative energies.
        panels
            how many panels to start with, at most: two for either tail, or one where it is light, the
            others between equally spaced quantiles.
        """
        proposal = conditionals.proposal
        inner = max(panels - 4, 1)
        step = (1 - 2 * OUTERMOST[-1]) / inner
        levels = (*OUTERMOST, *(OUTERMOST[-1] + step * k for k in range(1, (inner + 1) // 2)))
        levels += () if inner % 2 else (0.5,)
        ladder = Ladder.through(proposal.about(levels), proposal)
        if ladder.stretch is not None:
            none = torch.zeros_like(ladder.rungs[:, :2], dtype=torch.bool)
            return cls(conditionals, ladder, none)
        # A panel may not straddle a rung, unless the rung lies half-way between its neighbours.
        (end, rung, third), (other_third, other_rung, other_end) = (
            ladder.rungs[:, some].unbind(-1) for some in (slice(0, 3), slice(-3, None))
        )
        # The farther halves of the outer panels, up to the rungs.
        lower = torch.stack((end, 0.5 * (rung + third)), -1)
        upper = torch.stack((0.5 * (other_rung + other_third), other_end), -1)
        measure = proposal.in_single()
        beyond = torch.stack((measure.mass(lower), measure.mass(upper)), -1)
        near = torch.stack((third - rung, other_rung - other_third), -1)
        far = torch.stack((rung - end, other_end - other_rung), -1)
        light = (beyond >= LIGHT * OUTERMOST[-1]) & (far <= NOT_FAR * near)
        rungs = ladder.rungs.clone()
        rungs[:, 1] = torch.where(light[:, 0], 0.5 * (end + third), rung)
        rungs[:, -2] = torch.where(light[:, 1], 0.5 * (other_end + other_third), other_rung)
        return cls(conditionals, replace(ladder, rungs=rungs), light)

    def edges(self) -> Float[Tensor, "N R"]:
        """Where the first panels meet: in light tails the two there may be are one."""
        edges = self.ladder.edges().repeat(len(self.light), 1)
        edges[:, 1] = torch.where(self.light[:, 0], edges[:, 0], edges[:, 1])
        edges[:, -2] = torch.where(self.light[:, 1], edges[:, -1], edges[:, -2])
        return edges

    def select(self, index: Int[Tensor, " P"]) -> Self:
        """The coordinates of some conditionals."""
        if self.single is None:
            return replace(super().select(index), light=self.light[index])
        own = self.conditionals  # whose proposals are not asked, and would take most of the time
        own = replace(own, projected=own.projected[index], frequencies=own.frequencies[index])
        return replace(
            self,
            conditionals=own,
            ladder=self.ladder.select(index),
            light=self.light[index],
            single=self.single.select(index),
        )

    def in_single(self) -> Self:
        """The same with the proposal in single precision, which `masses` and `measure` suffice for."""
        own = self.conditionals
        if own.projected.device.type == "cpu":  # a GPU's kernels convert as they read
            own = replace(own, projected=own.projected.float())
        return replace(self, conditionals=own, single=own.proposal.in_single())

    def on_panels(
        self, t: Float[Tensor, "N S"], start: Float[Tensor, " N"], end: Float[Tensor, " N"]
    ) -> OnPanels:
        """What a panel of each conditional is: between two rungs x is linear in t."""
        if self.ladder.stretch is not None:
            return super().on_panels(t, start, end)
        ends = self.ladder.point(torch.stack((start, end), -1))
        low, high = ends.unbind(-1)
        slope = (high - low) / (end - start)
        x = panel_nodes(low, high)
        return OnPanels(
            x,
            self.measured.density(x) * slope[:, None],
            self.measured.mass(ends),
            self._unresolved(ends)[:, 0],
        )

    def _hiding(self, edges: Float[Tensor, "N E"]) -> Float[Tensor, "N F"]:
        """The share of the mass between neighbouring edges that may hide between nodes."""
        if self.ladder.stretch is not None:
            return super()._hiding(edges)
        return self._unresolved(self.ladder.point(edges))

    def _unresolved(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N F"]:
        """The share that may hide between nodes of panels with these ends, linear in x."""
        reach = self.conditionals.reach(x.dtype)
        half = 0.5 * x.clamp(-reach, reach).diff(dim=-1)
        # The gaps of the other half of a panel are the same.
        gaps = NODES[: len(NODES) // 2 + 1].diff().to(x.device)
        return unresolved(self, half[..., None] * gaps)

    @property
    def measured(self) -> Measure:
        """The proposal, or what stands for it."""
        return self.conditionals.proposal if self.single is None else self.single

    def joined(self, conditionals: Conditionals, parts: Sequence[Coordinates]) -> Coordinates:
        """Those of conditionals whose parts, in their order, have such coordinates as these."""
        lines = [part for part in parts if isinstance(part, LineChart)]
        ladder = Ladder.joined([line.ladder for line in lines])
        light = torch.cat([line.light for line in lines])
        return replace(self, conditionals=conditionals, ladder=ladder, light=light)

    def measure(self, t: Float[Tensor, "N S"], x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return q(x) dx/dt, the proposal's density in t."""
        return self.measured.density(x) * self.ladder.slope(t)

    def mass(self, start: Float[Tensor, " N"], end: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """Return the proposal's mass between two coordinates."""
        return self.measured.mass(self.ladder.point(torch.stack((start, end), -1)))

    def masses(self, edges: Float[Tensor, "N E"]) -> Float[Tensor, "N F"]:
        """Return the proposal's mass between neighbours of a row of coordinates."""
        return self.measured.masses(self.ladder.point(edges))


@dataclass(frozen=True)
class TailedCoordinates(LadderCoordinates):
    """Quantiles ε … 1 − ε on [0, 1], the left tail on [−1, 0], the right one on [1, 2].

    Parameters
    ----------
    conditionals
        a flat batch with literal energies.
    ladder
        x as a piecewise linear function of t in [0, 1].
    """

    comparable = False  # dx/dt jumps at the rungs, and p̃ has no bound relative to the proposal

    @classmethod
    def around(cls, conditionals: Conditionals, panels: int) -> "TailedCoordinates":
        """Make coordinates whose tails begin where the proposal's reach ends.

        Parameters
        ----------
        conditionals
            a flat batch with literal energies.
        panels
            how many panels to start with between the tails.
        """
        proposal = conditionals.proposal
        levels = _levels(REACH_OF_PROPOSAL, panels, proposal.batch)
        points = proposal.icdf(levels.expand(len(proposal.batch), -1))
        return cls(conditionals, Ladder.through(points, proposal))

    @property
    def low(self) -> Float[Tensor, "N 1"]:
        """The x where the left tail begins."""
        return self.ladder.ends[:, :1]

    @property
    def high(self) -> Float[Tensor, "N 1"]:
        """The x where the right tail begins."""
        return self.ladder.ends[:, -1:]

    @property
    def spread(self) -> Float[Tensor, "N 1"]:
        """The length that a tail is measured in: half the distance between the tails."""
        return 0.5 * (self.high - self.low)

    def edges(self) -> Float[Tensor, " E"]:
        """Where the first panels meet; none straddles an end of the reach."""
        centre = self.ladder.edges()
        tail = torch.linspace(0, 1, TAIL_PANELS + 1, dtype=centre.dtype, device=centre.device)
        return torch.cat((tail[:-1] - 1, centre, 1 + tail[1:]))

    def point(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """x at t."""
        beyond = self._beyond(t)
        step = self.spread * beyond / (1 - beyond)
        centre = self.ladder.point(t)
        return torch.where(t < 0, self.low - step, torch.where(t > 1, self.high + step, centre))

    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """t at x."""
        beyond = torch.maximum(self.low - x, x - self.high).clamp_min(0)
        tail = 1 / (1 + self.spread / beyond)  # v = d / (r + d), also for d = 0 and d = ∞
        outside = torch.where(x < self.low, -tail, 1 + tail)
        centre = self.ladder.coordinate(x)
        return torch.where((x < self.low) | (x > self.high), outside, centre)

    def log_weight(self, t: Float[Tensor, "N S"], x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return log p̃ dx/dt: piecewise linear inside, a rational change of variables outside."""
        tail = self.spread.log() - 2 * torch.log1p(-self._beyond(t))
        inside = (t >= 0) & (t <= 1)
        log_slope = torch.where(inside, self.ladder.slope(t).log(), tail)
        return self.conditionals.negative_energy(x) + log_slope

    @staticmethod
    def _beyond(t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """How far into a tail, 0 … 1."""
        return torch.maximum(-t, t - 1).clamp(0, 1 - 1e-15)

    def diverges(self) -> Bool[Tensor, " N"]:
        """Return whether a tail's integral is infinite.

        Beyond its last kink a ReLU network is linear in x, up to the bounded waves of the Fourier
        features, so p̃ = exp(−softplus f) decays exponentially or not at all. Far out, then, f must
        have grown in proportion to the distance; a decay longer than a million spreads of the
        proposal counts as none.
        """
        far = self.low.new_tensor(FAR)
        return self._level(self.low - self.spread * far) | self._level(
            self.high + self.spread * far
        )

    def _level(self, x: Float[Tensor, "N S"]) -> Bool[Tensor, " N"]:
        f = -self.conditionals.negative_energy(x)
        needed = x.new_tensor(FAR) / LONGEST_DECAY
        return (f < needed).any(-1) | (f[..., -1] < 4 * f[..., -2])
