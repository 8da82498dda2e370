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

REACH_OF_PROPOSAL = 1e-6  # ε: a quantile no importance sampler will draw beyond
# Quantiles where the line ends and where its outer panels meet; the others lie evenly between the last.
OUTERMOST = (1e-30, 1e-5, 0.02)
TAIL_PANELS = 2
# Nodes further apart in x than this, in units of 1/ω for the energy's highest frequency ω, may have
# structure between them. The value was chosen on trained models of the spirals and the diamond.
RESOLVED = 2.0
SMOOTH = 3.0  # the frequency a network without Fourier features is credited with
# Where a tail is judged, in spreads of the proposal from its edge: beyond every kink of a ReLU network.
FAR = tuple(2.0**k for k in (22, 23.1, 24.3, 25.6, 27, 30))
LONGEST_DECAY = 2.0**20


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
    def edges(self) -> Float[Tensor, " E"]:
        """Return the t where the first panels meet, the same for all conditionals."""

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


def coordinates_for(conditionals: Conditionals, panels: int = 8) -> Coordinates:
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


def unresolved(coordinates: Coordinates, x: Float[Tensor, "N S"]) -> Float[Tensor, " N"]:
    """Return how much of what lies between a row of nodes the energy may hide there, from 0 to 1.

    An energy cannot vary faster than its highest frequency. Where neighbouring nodes lie further
    apart in x than it can resolve, as across the gap between two modes of the proposal, it may do
    anything in between without a node noticing.

    Parameters
    ----------
    coordinates
        the coordinates of the conditionals.
    x
        S neighbouring nodes of each conditional, rising.
    """
    highest = coordinates.conditionals.highest_frequency.clamp_min(SMOOTH)
    reach = coordinates.conditionals.reach(x.dtype)  # further out the energy is a constant
    distance = x.clamp(-reach, reach).diff(dim=-1).amax(-1)
    return (1 - RESOLVED / (highest * distance)).clamp_min(0)


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
    """

    @classmethod
    def along(cls, conditionals: Conditionals, panels: int) -> "LineChart":
        """Make the coordinates of proposals without bounds.

        Parameters
        ----------
        conditionals
            a flat batch with relative energies.
        panels
            how many panels to start with: two for either tail, the others between equally spaced
            quantiles.
        """
        proposal = conditionals.proposal
        count = len(proposal.batch)
        outer = proposal.batch.new_tensor(OUTERMOST)
        inner = _levels(OUTERMOST[-1], max(panels - 4, 1), proposal.batch)
        low = proposal.icdf(torch.cat((outer[:-1], inner)).expand(count, -1))
        # 1 − 1e-30 is no number.
        high = proposal.isf(outer[:-1].flip(0).expand(count, -1))
        return cls(conditionals, Ladder.through(torch.cat((low, high), -1), proposal))

    def measure(self, t: Float[Tensor, "N S"], x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return q(x) dx/dt, the proposal's density in t."""
        return self.conditionals.proposal.density(x) * self.ladder.slope(t)

    def mass(self, start: Float[Tensor, " N"], end: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """Return the proposal's mass between two coordinates."""
        return self.conditionals.proposal.mass(self.ladder.point(torch.stack((start, end), -1)))


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
