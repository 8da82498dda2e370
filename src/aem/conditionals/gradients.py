"""Derivatives of log Z and of CDFs with respect to what makes a conditional.

A conditional is made of the parameters φ of its proposal and of its projected context γ. The
derivative of log Z is an expectation under the conditional, and it is computed by the quadrature
that gave Z: with nodes and panels held where they are,

    Z = Σ_P m_P v_P,    v_P = the mean weight at the nodes of panel P, weighted by the proposal,

is a function of φ and γ, whose derivative is taken. The mass m_P of a panel is differentiated as a
difference of values of the proposal's CDF. So whatever is exact in Z is exact in its derivative: of a
constant weight nothing remains, however rough the proposal. A CDF is the same sum over the panels
below a point, divided by Z.

An energy network with ReLUs has kinks, at which its derivative jumps. A derivative therefore has
fewer digits than Z itself, and gets more of them by a smaller tolerance.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.batch import Conditionals
from aem.conditionals.coordinates import Coordinates
from aem.conditionals.normalizer import Normalizer, Quadrature
from aem.conditionals.proposals.base import Proposal
from aem.conditionals.quadrature import (
    KRONROD,
    NODES_PER_PANEL,
    NodeValues,
    Panels,
    evaluate_panels,
    panel_nodes,
)
from aem.errors import AemError
from aem.nn.energy import EnergyNetwork

GRAPH = 2  # times the memory of an evaluation that its gradient takes, per node


def parts(conditionals: Conditionals) -> list[Tensor]:
    """Return the tensors that make conditionals: the proposal's parameters, then the projected γ.

    Parameters
    ----------
    conditionals
        a flat batch.
    """
    found: list[Tensor] = []

    def remember(part: Tensor) -> Tensor:
        found.append(part)
        return part

    conditionals.proposal.changed(remember)
    return [*found, conditionals.projected]


def _made_of(conditionals: Conditionals, some: slice, tensors: Sequence[Tensor]) -> Conditionals:
    """Some conditionals of a flat batch, with other tensors in place of their parts."""
    rest = iter(tensors[:-1])
    proposal: Proposal = conditionals.proposal.changed(lambda _: next(rest))
    frequencies = conditionals.frequencies[some]
    return replace(conditionals, proposal=proposal, projected=tensors[-1], frequencies=frequencies)


@dataclass(frozen=True)
class Rule:
    """A sum over the panels of N conditionals with constant coefficients, to be differentiated.

    Its derivative is that of Σ energy · (log weight at a node) + Σ proposal · (log q at a node)
    + Σ mass · (the proposal's mass in a panel). P panels, sorted by problem.

    Parameters
    ----------
    coordinates
        the coordinates of the N conditionals.
    problem
        the number of the conditional that each panel belongs to.
    start
        where each panel begins.
    end
        where each panel ends.
    energy
        coefficients of what the energy contributes to log p̃ at the nodes.
    proposal
        coefficients of the log density of the proposal at the nodes.
    mass
        coefficients of the proposal's mass in each panel.
    """

    coordinates: Coordinates
    problem: Int[Tensor, " P"]
    start: Float[Tensor, " P"]
    end: Float[Tensor, " P"]
    energy: Float[Tensor, "P S"]
    proposal: Float[Tensor, "P S"]
    mass: Float[Tensor, " P"]

    @classmethod
    def of(
        cls,
        coordinates: Coordinates,
        panels: Panels,
        share: Float[Tensor, " P"],
    ) -> "Rule":
        """Return the rule that differentiates Σ share · (integral over a panel).

        Parameters
        ----------
        coordinates
            the coordinates of the conditionals.
        panels
            their panels with the values at the nodes, sorted by problem.
        share
            a number per panel.
        """
        kronrod = KRONROD.to(panels.measure.device)
        seen = panels.measure * kronrod
        total = seen.sum(-1, keepdim=True)
        blind = 0.5 * (panels.end - panels.start) * total[:, 0] < torch.finfo(total.dtype).tiny
        of_mass = torch.where(blind[:, None], 1 / NODES_PER_PANEL, seen / total)
        mean = (of_mass * panels.weight).sum(-1)
        by_node = (share * panels.mass)[:, None] * of_mass
        deviation = by_node * (panels.weight - mean[:, None])
        return cls(
            coordinates,
            panels.problem,
            panels.start,
            panels.end,
            by_node * panels.weight,
            deviation.masked_fill(blind[:, None], 0.0),
            share * mean,
        )

    @classmethod
    def of_log_z(cls, computed: Normalizer) -> "Rule":
        """Return the rule that differentiates log Z of each conditional.

        Parameters
        ----------
        computed
            normalisers that kept their panels.
        """
        panels = _kept(computed)
        total = _totals(panels, computed)
        return cls.of(computed.coordinates, panels, (1 / total)[panels.problem])

    @classmethod
    def of_cdf(cls, computed: Normalizer, x: Float[Tensor, " N"], settings: Quadrature) -> "Rule":
        """Return the rule that differentiates the CDF of each conditional at a fixed point.

        The panel that holds the point is cut there.

        Parameters
        ----------
        computed
            normalisers that kept their panels.
        x
            a standardised value of each conditional.
        settings
            says how much memory there is.
        """
        panels, coordinates = _kept(computed), computed.coordinates
        t = coordinates.coordinate(x[:, None])[:, 0][panels.problem]
        cut = (panels.start < t) & (t < panels.end)
        problem, start, end = (part[cut] for part in (panels.problem, panels.start, panels.end))
        at = t[cut]
        pieces = [
            _evaluated(computed, problem, low, high, settings)
            for low, high in ((start, at), (at, end))
        ]
        panels = Panels.concatenate([panels.take(~cut), *pieces]).sorted()
        total = _totals(panels, computed)
        middle = 0.5 * (panels.start + panels.end)
        here = coordinates.coordinate(x[:, None])[:, 0][panels.problem]
        below = (middle < here).to(total)
        under = torch.zeros_like(total).index_add_(0, panels.problem, below * panels.integral)
        share = (below - (under / total)[panels.problem]) / total[panels.problem]
        return cls.of(coordinates, panels, share)

    def slices(self, most: int) -> Iterator[tuple[slice, slice]]:
        """Yield panels a few at a time, and the conditionals that they belong to.

        Parameters
        ----------
        most
            panels at a time.
        """
        for begin in range(0, len(self.problem), most):
            some = slice(begin, min(begin + most, len(self.problem)))
            yield some, slice(int(self.problem[some.start]), int(self.problem[some.stop - 1]) + 1)

    def derivative(self, settings: Quadrature, wanted: Sequence[bool]) -> list[Tensor | None]:
        """Return the derivatives with respect to the parts of each conditional, in their shapes.

        Parameters
        ----------
        settings
            says how much memory there is.
        wanted
            for each part whether its derivative is needed; the others are None.
        """
        own = [part.detach() for part in parts(self.coordinates.conditionals)]
        total = [torch.zeros_like(p) if w else None for p, w in zip(own, wanted, strict=True)]

        def leaves(some: slice) -> list[Tensor]:
            return [p[some].requires_grad_(w) for p, w in zip(own, wanted, strict=True)]

        if not any(wanted):
            return total
        energy = copy.deepcopy(self.coordinates.conditionals.energy).requires_grad_(False)
        for sums, made_of, problems in self._terms(
            settings, leaves, energy, proposal=any(wanted[:-1])
        ):
            needed = [leaf for leaf in made_of if leaf.requires_grad]
            found = iter(
                torch.autograd.grad(sums, needed, torch.ones_like(sums), allow_unused=True)
            )
            for place in total:
                gradient = None if place is None else next(found)
                if place is not None and gradient is not None:
                    place[problems] += gradient
        return total

    def derivative_of_energy(
        self, settings: Quadrature, weight: Float[Tensor, " N"], parameters: Sequence[Tensor]
    ) -> list[Tensor]:
        """Return the derivatives with respect to parameters of the energy network.

        Parameters
        ----------
        settings
            says how much memory there is.
        weight
            what the sum of each conditional is multiplied by before all are added up.
        parameters
            of the energy network that the coordinates' conditionals have.
        """
        own = [part.detach() for part in parts(self.coordinates.conditionals)]
        total = [torch.zeros_like(parameter) for parameter in parameters]

        def constants(some: slice) -> list[Tensor]:
            return [part[some] for part in own]

        energy = self.coordinates.conditionals.energy
        for sums, _, problems in self._terms(settings, constants, energy, proposal=False):
            found = torch.autograd.grad(
                sums, parameters, weight[problems].to(sums), allow_unused=True
            )
            for place, gradient in zip(total, found, strict=True):
                if gradient is not None:
                    place += gradient
        return total

    def _terms(
        self,
        settings: Quadrature,
        made_of: Callable[[slice], list[Tensor]],
        energy: EnergyNetwork,
        *,
        proposal: bool,
    ) -> Iterator[tuple[Float[Tensor, " M"], list[Tensor], slice]]:
        """The sums of some conditionals at a time, what those are made of, and which they are."""
        conditionals = replace(self.coordinates.conditionals, energy=energy)
        proposal = proposal and conditionals.form == "relative"
        chunk = settings.budget(conditionals).chunk // GRAPH
        for some, problems in self.slices(max(chunk // NODES_PER_PANEL, 1)):
            problem = self.problem[some]
            with torch.no_grad():
                coordinates = self.coordinates.select(problem)
                x = coordinates.point(panel_nodes(self.start[some], self.end[some]))
                ends = coordinates.point(torch.stack((self.start[some], self.end[some]), -1))
            with torch.enable_grad():
                tensors = made_of(problems)
                local = problem - problems.start
                own = _made_of(conditionals, problems, tensors).select(local)
                terms = (self.energy[some] * own.negative_energy(x)).sum(-1)
                if proposal:
                    terms = terms + (self.proposal[some] * own.proposal.log_prob(x)).sum(-1)
                    terms = terms + self.mass[some] * own.proposal.mass(ends)
                sums = terms.new_zeros(problems.stop - problems.start).index_add(0, local, terms)
            yield sums, tensors, problems


def _kept(computed: Normalizer) -> Panels:
    if computed.panels is None:
        raise AemError("a derivative needs a normaliser that kept its panels")
    return computed.panels


def _totals(panels: Panels, computed: Normalizer) -> Float[Tensor, " N"]:
    """The integral over all panels of each conditional."""
    return torch.zeros_like(computed.log_z).index_add_(0, panels.problem, panels.integral)


def _evaluated(
    computed: Normalizer,
    problem: Int[Tensor, " P"],
    start: Float[Tensor, " P"],
    end: Float[Tensor, " P"],
    settings: Quadrature,
) -> Panels:
    """Further panels of conditionals whose normalisers are known."""

    def integrand(problem: Tensor, t: Tensor, start: Tensor, end: Tensor) -> NodeValues:
        own = computed.coordinates.select(problem)
        x = own.point(t)
        level = own.log_weight(t, x) - computed.offset[problem, None]
        mass = own.mass(start, end)
        return NodeValues(level.exp(), own.measure(t, x), mass, torch.zeros_like(mass))

    chunk = settings.budget(computed.coordinates.conditionals).chunk
    return evaluate_panels(integrand, problem, start, end, chunk)
