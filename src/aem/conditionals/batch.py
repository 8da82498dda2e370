"""A batch of one-dimensional conditionals: what the ARNN made of x_<d, ready to be evaluated.

Everything downstream (estimators, quadrature, sampling) works with the *weight*
w(x) = p̃(x) / q(x) of the unnormalised density against the proposal, because Z = E_q[w] and
log p(x) = log q(x) + log w(x) − log Z in every form of the energy.

Relative form (default): w = exp(−g(f)), 0 < w ≤ 1, that is E = g(f) − log q. Then
Z = ∫ q(x) w(x) dx ≤ ∫ q(x) dx = 1 and Z > 0 whatever the weights of the network, so the conditional
is normalisable by construction, importance weights never exceed one, and accepting a draw of q with
probability w samples p exactly. g is softplus bent towards a floor, g(f) = s / (1 + s / M) with
s = softplus(f): the weight stays above e^(−M), so no energy, however wild, can push a row more than
M nats below its proposal.

Literal form (the paper's): p̃ = exp(−softplus(f)) and w = p̃ / q. Nothing makes f grow in the tails,
so Z may be infinite; `aem.conditionals.normalizer` looks for that. The bound of log p̃, zero here, may
be another number, which changes p̃ but not p; without one p̃ = exp(f).
"""

import copy
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.proposals.base import Proposal
from aem.nn.energy import EnergyNetwork
from aem.nn.features import REACH
from aem.nn.functions import softplus

EnergyForm = Literal["relative", "literal"]
DEPTH = 32.0  # M: the most nats a relative energy may take from the proposal
LITERAL_REACH = (
    1e60  # as REACH, but further out than any tail: a literal energy is all there is there
)


@dataclass(frozen=True)
class Conditionals:
    """Proposals and energies of a batch `*B` (usually [B, D], or flat [N])."""

    proposal: Proposal
    projected: Float[Tensor, "*B H"]  # γ through the energy network's first layer
    frequencies: Float[Tensor, "*#B F"]
    energy: EnergyNetwork
    form: EnergyForm
    bound: float | None = 0.0  # of a literal log p̃; None for none

    def reach(self, dtype: torch.dtype) -> float:
        """How far out the network tells values apart."""
        if self.form == "relative":
            return REACH
        largest: float = torch.finfo(dtype).max ** 0.25
        return min(LITERAL_REACH, largest)

    def network(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """f, what the energy network says at each node."""
        reach = self.reach(x.dtype)
        x = x.clamp(-reach, reach)
        return self.energy.at(x, self.frequencies, self.projected)

    def negative_energy(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """From f to log p̃, without log q in either form: at most zero, or what bounds a literal one."""
        f = self.network(x)
        if self.form == "relative":
            s = softplus(f)
            return -s / (1 + s / DEPTH)
        if self.bound is None:
            return f
        return self.bound - softplus(f) if self.bound else -softplus(f)

    def log_weight(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """log p̃ − log q at each node; constant with respect to the proposal's parameters."""
        if self.form == "relative":
            return self.negative_energy(x)
        with torch.no_grad():
            log_q = self.proposal.log_prob(x)
        # Outside a bounded proposal there is no density, whatever the energy says.
        return (self.negative_energy(x) - log_q).masked_fill(log_q.isneginf(), -torch.inf)

    def log_unnormalized(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """log p̃ at each node; −inf beyond a proposal's bounds, whatever the form."""
        log_q = self.proposal.log_prob(x)
        negative_energy = self.negative_energy(x)
        if self.form == "relative":
            return negative_energy + log_q
        if self.proposal.bounded:
            return negative_energy.masked_fill(log_q == -torch.inf, -torch.inf)
        return negative_energy

    @property
    def highest_frequency(self) -> Float[Tensor, "*B"]:
        """Of the waves the network has of x, per conditional; zero where it has none."""
        like = self.projected[..., 0]
        if not self.frequencies.shape[-1]:
            return torch.zeros_like(like)
        return self.frequencies.amax(-1).expand(like.shape)

    def select(self, index: Int[Tensor, " P"]) -> "Conditionals":
        """Some conditionals of a flat batch."""
        return replace(
            self,
            proposal=self.proposal.select(index),
            projected=self.projected[index],
            frequencies=self.frequencies[index],
        )

    def double(self) -> "Conditionals":
        """The same in float64."""
        if self.projected.dtype == torch.float64:
            return self
        return replace(
            self,
            proposal=self.proposal.double(),
            projected=self.projected.double(),
            frequencies=self.frequencies.double(),
            energy=copy.deepcopy(self.energy).double(),
        )

    def with_single_energy(self) -> "Conditionals":
        """The same, its energies by float32 arithmetic, which is faster."""
        return replace(self, energy=copy.deepcopy(self.energy).float())

    def flatten(self) -> "Conditionals":
        """One batch axis, for algorithms that treat each conditional on its own."""
        shape = self.projected.shape[:-1]
        frequencies = self.frequencies.expand(*shape, self.frequencies.shape[-1])
        return replace(
            self,
            proposal=self.proposal.flatten(),
            projected=self.projected.flatten(0, -2),
            frequencies=frequencies.flatten(0, -2),  # not reshape(-1, …): there may be none
        )


def representatives(groups: Int[Tensor, " B"]) -> Int[Tensor, " G"]:
    """One row of each group."""
    rows = torch.arange(len(groups), device=groups.device)
    count = int(groups.max()) + 1 if len(groups) else 0
    return rows.new_zeros(count).scatter_(0, groups.flip(0), rows.flip(0))
