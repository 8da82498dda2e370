"""The four scores of the paper's table 1, for one model or a mixture of several."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aem.conditionals.normalizer import Quadrature
from aem.evaluation.importance import importance_scores
from aem.evaluation.kde import KDE, fit_kde
from aem.evaluation.resumable import Columns
from aem.model.aem import AEM
from aem.model.distribution import AEMDistribution
from aem.model.ensemble import Member, mixture_error, mixture_log_prob
from aem.model.scoring import without_density
from aem.paper.tables.config import EvaluateConfig

T = TypeVar("T")

MEMORY = {"cpu": 2**28, "cuda": 2**32}  # bytes a score may work with
# Energies between two looks at the clock: about a second's worth.
ENERGIES = {"cpu": 2**20, "cuda": 2**25}
QUADRATURE_NODES = 4000  # a conditional, for want of knowing; sharp energies need as many


class Scorer:
    """Scores rows of a table, a block at a time."""

    def __init__(self, members: Sequence[Member], settings: EvaluateConfig) -> None:
        self.members = tuple(members)
        self.settings = settings
        self.device = members[0].model.shift.device
        self.memory = MEMORY[self.device.type]

    def block(self, nodes: int) -> int:
        """Rows to score together where each conditional takes so many nodes."""
        features = self.members[0].model.config.features * len(self.members)
        return max(ENERGIES[self.device.type] // (features * nodes), 1)

    @cached_property
    def exact(self) -> list[AEM]:
        """The models in float64."""
        return self._each(AEM.in_double)

    @cached_property
    def _distributions(self) -> list[AEMDistribution]:
        return self._each(AEM.__call__)

    def _each(self, make: Callable[[AEM], T]) -> list[T]:
        """Something of every member's model, made once for members that share one."""
        made = {id(m.model): m.model for m in self.members}
        kept = {key: make(model) for key, model in made.items()}
        return [kept[id(m.model)] for m in self.members]

    @torch.no_grad()
    def proposal(self, x: Float[Tensor, "B D"], first: int) -> Columns:
        """The proposal alone."""
        parts = []
        for member, exact in zip(self.members, self.exact, strict=True):
            z = exact.standardise(member.arrange(x))
            log_q = exact.conditionals(z).proposal.log_prob(z[..., None])[..., 0]
            parts.append((log_q - exact.scale.log()).sum(-1) + member.log_volume(x))
        return {"log_prob": mixture_log_prob(torch.stack(parts))}

    def quadrature(self, x: Float[Tensor, "B D"], first: int) -> Columns:
        """The model itself, with the error of its normalisers; NaN where it has no density.

        `within_reach` counts only the mass that the proposal can draw: what importance sampling
        would converge to.
        """
        settings = Quadrature(tolerance=self.settings.tolerance, memory=self.memory)
        log_prob, reached, error, nodes = [], [], [], []
        exists = ~self.without_density(x)
        for member, distribution in zip(self.members, self._distributions, strict=True):
            scores = distribution.scores(member.arrange(x[exists]), settings)
            log_prob.append(scores.log_prob.sum(-1) + member.log_volume(x[exists]))
            reached.append(log_prob[-1] - torch.log1p(-scores.outside).sum(-1))
            error.append(scores.error.sum(-1))
            nodes.append(scores.nodes.double().mean(-1))
        total = torch.stack(log_prob)
        columns = {
            "log_prob": mixture_log_prob(total),
            "within_reach": mixture_log_prob(torch.stack(reached)),
            "error": mixture_error(total, torch.stack(error)),
            "nodes": torch.stack(nodes).mean(0),
        }
        return {name: _spread(values, exists) for name, values in columns.items()}

    def without_density(self, x: Float[Tensor, "B D"]) -> Bool[Tensor, " B"]:
        """Rows that some member has no density for."""
        pairs = zip(self.members, self.exact, strict=True)
        return torch.stack([without_density(e, m.arrange(x)) for m, e in pairs]).any(0)

    def importance(self, x: Float[Tensor, "B D"], first: int) -> Columns:
        """The paper's AEM*: independent draws, other ones for every block and member."""
        log_prob, bias = [], []
        for place, member in enumerate(self.members):
            scores = importance_scores(
                member.model,
                member.arrange(x),
                samples=self.settings.importance_samples,
                seed=first * len(self.members) + place,
                memory=self.memory,
            )
            log_prob.append(scores.log_prob.sum(-1) + member.log_volume(x))
            bias.append(scores.bias.sum(-1))
        total = torch.stack(log_prob)
        return {
            "log_prob": mixture_log_prob(total),
            "bias": mixture_error(total, torch.stack(bias)),
        }

    def fit_kernels(self, validation: Float[Tensor, "B D"]) -> list[KDE]:
        """Each member's bandwidth and weight of the proposal, fitted on validation rows."""
        samples = self.settings.kde_samples
        return [
            fit_kde(m.model, m.arrange(validation), samples=samples, memory=self.memory)
            for m in self.members
        ]

    def kde(self, kernels: Sequence[KDE], x: Float[Tensor, "B D"]) -> Columns:
        """AEM-KDE."""
        parts = [
            kernel.log_prob(member.model, member.arrange(x), memory=self.memory).sum(-1)
            + member.log_volume(x)
            for kernel, member in zip(kernels, self.members, strict=True)
        ]
        return {"log_prob": mixture_log_prob(torch.stack(parts))}


def _spread(values: Float[Tensor, " N"], where: Bool[Tensor, " B"]) -> Float[Tensor, " B"]:
    full = values.new_full(where.shape, torch.nan)
    full[where] = values
    return full
