"""Coordinates in which a conditional is integrated: t on a finite interval instead of x on the line.

*Quantiles.* With u = F_q(x), Z = ∫ q(x) w(x) dx = ∫₀¹ w(F_q⁻¹(u)) du: the proposal's own peaks and
tails are absorbed by the change of variables, and what is left to resolve is the weight alone. This
is enough for the relative form, where p̃ ≤ q. A mixture's ends are stretched once more, u = t²(3 − 2t),
because a tail of infinite length is squeezed into each of them.

*Bounds.* A uniform proposal's support is all there is, in either form of the energy: the density is
zero beyond it by definition, and t runs evenly from one bound to the other.

*Quantiles and tails.* The paper's literal energy does not follow the proposal: p̃ / q may grow
without bound, and mass may lie where the proposal never draws. There t ∈ [0, 1] covers the
proposal's quantiles from ε to 1 − ε, and the half-lines beyond are integrated in x, through
x = edge ± r v / (1 − v) with v = −t on the left and v = t − 1 on the right.
"""

import math
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aem.conditionals import Conditionals
from aem.proposals import FixedUniform

REACH_OF_PROPOSAL = 1e-6  # ε: a quantile no importance sampler will draw beyond
TAIL_PANELS = 2
# Nodes further apart in x than this, in units of 1/ω for the energy's highest frequency ω, may have
# structure between them; that share of the mass between such nodes is then in doubt. Both values were
# chosen on trained models of the spirals and the diamond, whose stated errors are too small without.
RESOLVED = 2.0
IN_DOUBT = 0.2
SMOOTH = 3.0  # the frequency a network without Fourier features is credited with
# Where a tail is judged, in spreads of the proposal from its edge: beyond every kink of a ReLU network.
FAR = tuple(2.0**k for k in (22, 23.1, 24.3, 25.6, 27, 30))
LONGEST_DECAY = 2.0**20


@runtime_checkable
class Chart(Protocol):
    """x ↔ t for a flat batch of conditionals, and p̃(x) dx/dt."""

    @property
    def conditionals(self) -> Conditionals:
        """Whose chart this is."""

    def edges(self, panels: int) -> Float[Tensor, " E"]:
        """Where the first panels meet: `panels` of them in [0, 1]."""

    def point(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """x at t, increasing."""

    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """t at x."""

    def log_integrand(
        self, t: Float[Tensor, "N S"], x: Float[Tensor, "N S"]
    ) -> Float[Tensor, "N S"]:
        """log p̃(x) dx/dt, given x at t."""

    def largest_mass(
        self, t: Float[Tensor, "N S"], values: Float[Tensor, "N S"]
    ) -> Float[Tensor, "N R"]:
        """The most that may lie between neighbouring nodes of the integrand with these values."""

    def select(self, index: Int[Tensor, " P"]) -> Self:
        """The charts of some conditionals."""


def chart_for(conditionals: Conditionals) -> Chart:
    """The coordinate that covers all the mass a conditional can have."""
    if isinstance(conditionals.proposal, FixedUniform):
        return BoundedChart(conditionals)
    if conditionals.form == "relative":
        return QuantileChart(conditionals)
    return TailedChart.around(conditionals)


def doubt(
    chart: Chart,
    t: Float[Tensor, "N S"],
    x: Float[Tensor, "N S"],
    values: Float[Tensor, "N S"],
) -> Float[Tensor, " N"]:
    """How far each row of nodes may err through structure that hides between the nodes.

    An energy cannot vary faster than its highest frequency. Where neighbouring nodes lie further
    apart in x than it can resolve, as across the gap between two modes of the proposal, it may do
    anything in between without a node noticing.
    """
    frequencies = chart.conditionals.frequencies
    highest = torch.full_like(t[:, :1], SMOOTH)
    if frequencies.shape[-1]:
        highest = frequencies.amax(-1, keepdim=True).clamp_min(SMOOTH)
    distance = x.diff(dim=-1).nan_to_num(nan=0.0)  # ∞ − ∞ in a literal energy's tails
    unresolved = (1 - RESOLVED / (highest * distance)).clamp_min(0)
    return IN_DOUBT * (chart.largest_mass(t, values) * unresolved).square().sum(-1).sqrt()


def _unit_edges(panels: int, like: Tensor) -> Float[Tensor, " E"]:
    return torch.linspace(0, 1, panels + 1, dtype=torch.float64, device=like.device)


@dataclass(frozen=True)
class BoundedChart:
    """t = F_q(x), for a proposal with bounds."""

    conditionals: Conditionals

    def edges(self, panels: int) -> Float[Tensor, " E"]:
        """Where the first panels meet."""
        return _unit_edges(panels, self.conditionals.projected)

    def point(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """x at t."""
        return self.conditionals.proposal.icdf(t)

    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """t at x."""
        return self.conditionals.proposal.cdf(x)

    def log_integrand(
        self, t: Float[Tensor, "N S"], x: Float[Tensor, "N S"]
    ) -> Float[Tensor, "N S"]:
        """The log weight at the quantile."""
        return self.conditionals.log_weight(x)

    def largest_mass(
        self, t: Float[Tensor, "N S"], values: Float[Tensor, "N S"]
    ) -> Float[Tensor, "N R"]:
        """The proposal's, as a relative weight is at most one; in the literal form, as seen so far."""
        if self.conditionals.form == "relative":
            return t.diff(dim=-1)
        return t.diff(dim=-1) * values.amax(-1, keepdim=True)

    def select(self, index: Int[Tensor, " P"]) -> "BoundedChart":
        """The charts of some conditionals."""
        return BoundedChart(self.conditionals.select(index))


@dataclass(frozen=True)
class QuantileChart:
    """t²(3 − 2t) = F_q(x)."""

    conditionals: Conditionals

    def edges(self, panels: int) -> Float[Tensor, " E"]:
        """Where the first panels meet."""
        return _unit_edges(panels, self.conditionals.projected)

    def point(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """x at t."""
        return self.conditionals.proposal.icdf(_stretch(t))

    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """t at x: the middle root of the cubic."""
        u = self.conditionals.proposal.cdf(x).clamp(0, 1)
        return (0.5 - torch.sin(torch.asin(1 - 2 * u) / 3)).clamp(0, 1)

    def log_integrand(
        self, t: Float[Tensor, "N S"], x: Float[Tensor, "N S"]
    ) -> Float[Tensor, "N S"]:
        """The log weight at the quantile, stretched."""
        return self.conditionals.log_weight(x) + torch.log(6 * t * (1 - t))

    def largest_mass(
        self, t: Float[Tensor, "N S"], values: Float[Tensor, "N S"]
    ) -> Float[Tensor, "N R"]:
        """The proposal's: a relative weight is at most one."""
        return _stretch(t).diff(dim=-1)

    def select(self, index: Int[Tensor, " P"]) -> "QuantileChart":
        """The charts of some conditionals."""
        return QuantileChart(self.conditionals.select(index))


def _stretch(t: Tensor) -> Tensor:
    return t * t * (3 - 2 * t)


@dataclass(frozen=True)
class TailedChart:
    """Quantiles ε … 1 − ε on [0, 1], the left tail on [−1, 0], the right one on [1, 2]."""

    conditionals: Conditionals
    low: Float[Tensor, "N 1"]
    high: Float[Tensor, "N 1"]

    @classmethod
    def around(cls, conditionals: Conditionals) -> "TailedChart":
        """Tails begin where the proposal's reach ends."""
        like = conditionals.proposal.batch
        reach = like.new_tensor([REACH_OF_PROPOSAL, 1 - REACH_OF_PROPOSAL])
        low, high = conditionals.proposal.icdf(reach.expand(*like.shape, 2)).split(1, -1)
        return cls(conditionals, low, high)

    @property
    def spread(self) -> Float[Tensor, "N 1"]:
        """The length a tail is measured in."""
        return 0.5 * (self.high - self.low)

    def edges(self, panels: int) -> Float[Tensor, " E"]:
        """Where the first panels meet; none straddles an end of the reach."""
        centre = torch.linspace(0, 1, panels + 1, dtype=torch.float64)
        tail = torch.linspace(0, 1, TAIL_PANELS + 1, dtype=torch.float64)
        edges = torch.cat((tail[:-1] - 1, centre, 1 + tail[1:]))
        return edges.to(self.conditionals.projected.device)

    def point(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """x at t."""
        shrink = 1 - 2 * REACH_OF_PROPOSAL
        centre = self.conditionals.proposal.icdf(REACH_OF_PROPOSAL + shrink * t.clamp(0, 1))
        beyond = self._beyond(t)
        step = self.spread * beyond / (1 - beyond)
        return torch.where(t < 0, self.low - step, torch.where(t > 1, self.high + step, centre))

    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """t at x."""
        shrink = 1 - 2 * REACH_OF_PROPOSAL
        centre = (self.conditionals.proposal.cdf(x) - REACH_OF_PROPOSAL) / shrink
        beyond = torch.maximum(self.low - x, x - self.high).clamp_min(0)
        tail = 1 / (1 + self.spread / beyond)  # v = d / (r + d), also for d = 0 and d = ∞
        outside = torch.where(x < self.low, -tail, 1 + tail)
        return torch.where((x < self.low) | (x > self.high), outside, centre.clamp(0, 1))

    def log_integrand(
        self, t: Float[Tensor, "N S"], x: Float[Tensor, "N S"]
    ) -> Float[Tensor, "N S"]:
        """log p̃ dx/dt: the weight inside, a rational change of variables outside."""
        shrink = math.log1p(-2 * REACH_OF_PROPOSAL)
        tail = self.spread.log() - 2 * torch.log1p(-self._beyond(t))
        inside = (t >= 0) & (t <= 1)
        log_jacobian = torch.where(inside, shrink - self.conditionals.proposal.log_prob(x), tail)
        return self.conditionals.negative_energy(x) + log_jacobian

    def largest_mass(
        self, t: Float[Tensor, "N S"], values: Float[Tensor, "N S"]
    ) -> Float[Tensor, "N R"]:
        """As seen so far, within the proposal's reach; the tails have panels of their own."""
        inside = (t[:, :-1] >= 0) & (t[:, 1:] <= 1)
        return t.diff(dim=-1) * values.amax(-1, keepdim=True) * inside

    @staticmethod
    def _beyond(t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """How far into a tail, 0 … 1."""
        return torch.maximum(-t, t - 1).clamp(0, 1 - 1e-15)

    def select(self, index: Int[Tensor, " P"]) -> "TailedChart":
        """The charts of some conditionals."""
        return TailedChart(self.conditionals.select(index), self.low[index], self.high[index])

    def diverges(self) -> Bool[Tensor, " N"]:
        """Whether a tail's integral is infinite.

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
