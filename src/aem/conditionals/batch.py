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
    """Proposals and energies of a batch `*B` (usually [B, D], or flat [N]), in standardised units.

    Parameters
    ----------
    proposal
        q(x_d) of each conditional.
    projected
        context vectors γ after the context's share of the energy network's first layer.
    frequencies
        Fourier frequencies of each conditional's column; F may be zero.
    energy
        the energy network, shared by all conditionals.
    form
        "relative" for energies measured against the proposal and capped by it, "literal" for the
        paper's.
    bound
        the most that log p̃ of a literal energy may be; None for no bound.
    """

    proposal: Proposal
    projected: Float[Tensor, "*B H"]
    frequencies: Float[Tensor, "*#B F"]
    energy: EnergyNetwork
    form: EnergyForm
    bound: float | None = 0.0

    def reach(self, dtype: torch.dtype) -> float:
        """Return how far from zero the network still tells values apart.

        Parameters
        ----------
        dtype
            the type that values have.
        """
        if self.form == "relative":
            return REACH
        largest: float = torch.finfo(dtype).max ** 0.25
        return min(LITERAL_REACH, largest)

    def network(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return f, the output of the energy network, at each node.

        Parameters
        ----------
        x
            S nodes of each conditional.
        """
        reach = self.reach(x.dtype)
        x = x.clamp(-reach, reach)
        return self.energy.at(x, self.frequencies, self.projected)

    def negative_energy(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return what the energy contributes to log p̃ at each node, without log q.

        It is at most zero, or the bound of a literal energy.

        Parameters
        ----------
        x
            S nodes of each conditional.
        """
        f = self.network(x)
        if self.form == "relative":
            s = softplus(f)
            return -s / (1 + s / DEPTH)
        if self.bound is None:
            return f
        return self.bound - softplus(f) if self.bound else -softplus(f)

    def log_weight(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return log p̃ − log q at each node; no gradient reaches the proposal's parameters.

        Parameters
        ----------
        x
            S nodes of each conditional.
        """
        if self.form == "relative":
            return self.negative_energy(x)
        with torch.no_grad():
            log_q = self.proposal.log_prob(x)
        # Outside a bounded proposal there is no density, whatever the energy says.
        return (self.negative_energy(x) - log_q).masked_fill(log_q.isneginf(), -torch.inf)

    def log_unnormalized(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return log p̃ at each node; −inf beyond a proposal's bounds, whatever the form.

        Parameters
        ----------
        x
            S nodes of each conditional.
        """
        log_q = self.proposal.log_prob(x)
        negative_energy = self.negative_energy(x)
        if self.form == "relative":
            return negative_energy + log_q
        if self.proposal.bounded:
            return negative_energy.masked_fill(log_q == -torch.inf, -torch.inf)
        return negative_energy

    @property
    def highest_frequency(self) -> Float[Tensor, "*B"]:
        """The highest Fourier frequency of each conditional; zero where there is none."""
        like = self.projected[..., 0]
        if not self.frequencies.shape[-1]:
            return torch.zeros_like(like)
        return self.frequencies.amax(-1).expand(like.shape)

    def select(self, index: Int[Tensor, " P"]) -> "Conditionals":
        """Return some conditionals of a flat batch.

        Parameters
        ----------
        index
            numbers of the conditionals; one may be named more than once.
        """
        return replace(
            self,
            proposal=self.proposal.select(index),
            projected=self.projected[index],
            frequencies=self.frequencies[index],
        )

    def double(self) -> "Conditionals":
        """Return the conditionals in float64, with a copy of the energy network."""
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
        """Return the conditionals with energies by float32 arithmetic, which is faster."""
        return replace(self, energy=copy.deepcopy(self.energy).float())

    def flatten(self) -> "Conditionals":
        """Return the conditionals with one batch axis, for algorithms that treat each on its own."""
        shape = self.projected.shape[:-1]
        frequencies = self.frequencies.expand(*shape, self.frequencies.shape[-1])
        return replace(
            self,
            proposal=self.proposal.flatten(),
            projected=self.projected.flatten(0, -2),
            frequencies=frequencies.flatten(0, -2),  # not reshape(-1, …): there may be none
        )


def representatives(groups: Int[Tensor, " B"]) -> Int[Tensor, " G"]:
    """Return the number of one row of each group.

    Parameters
    ----------
    groups
        the number of each row's group; groups are numbered from zero without gaps.
    """
    rows = torch.arange(len(groups), device=groups.device)
    count = int(groups.max()) + 1 if len(groups) else 0
    return rows.new_zeros(count).scatter_(0, groups.flip(0), rows.flip(0))
