"""The four scores of a table's rows: by quadrature, importance sampling, AEM-KDE and the proposal.

An ensemble is scored member by member, and the densities are averaged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aem.base.files import tensor_digest
from aem.base.progress import Report, part_of, silent
from aem.base.settings import unusual
from aem.conditionals.normalizer import Quadrature
from aem.config import ModelConfig
from aem.errors import AemError
from aem.evaluation.importance import MEMORY, importance_scores
from aem.evaluation.kde import KDE, fit_kde
from aem.evaluation.side_by_side import Estimate, Exact
from aem.model.scoring import by_row, without_density
from aem.model.transforms.records import to_records
from aem.tables.ensemble import TableEnsemble, mixture_error, mixture_log_prob
from aem.tables.model import TableModel


@dataclass(frozen=True)
class MemberConfigs:
    """Settings of the members of an ensemble, as a result file tells them.

    Parameters
    ----------
    members
        the settings of each member's model, in order.
    """

    members: tuple[ModelConfig, ...]


@dataclass(frozen=True)
class TableScores:
    """The four scores of a table in its units, in float64, as `evaluate` needs them.

    Parameters
    ----------
    members
        the models; one of them alone is its own mixture.
    memory
        bytes that importance sampling and AEM-KDE may work with.
    """

    members: tuple[TableModel, ...]
    memory: int = MEMORY

    @classmethod
    def of(cls, table: TableModel | TableEnsemble, memory: int = MEMORY) -> "TableScores":
        """Make the scores of a model or an ensemble.

        Parameters
        ----------
        table
            what is scored.
        memory
            bytes that importance sampling and AEM-KDE may work with.
        """
        members = table.members if isinstance(table, TableEnsemble) else (table,)
        return cls(members, memory)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.members[0].columns

    @property
    def device(self) -> torch.device:
        """The device that the models are on."""
        return self.members[0].model.device

    @property
    def config(self) -> Any:
        """Settings of the model, or of all members of an ensemble."""
        configs = tuple(member.model.config for member in self.members)
        return configs[0] if len(configs) == 1 else MemberConfigs(configs)

    @property
    def no_kernels(self) -> str | None:
        """A sentence that says why there is no AEM-KDE; None if there is one."""
        if self.members[0].discrete:
            return "AEM-KDE is a density of values, and this table has discrete columns"
        return None

    def digest(self) -> str:
        """Return a fingerprint of all that decides the scores."""
        tensors, plain = {}, []
        for place, member in enumerate(self.members):
            config, transforms = unusual(member.model.config), to_records(member.transform)
            discrete = [column.as_record() for column in member.discrete]
            plain.append([config, transforms, discrete, member.columns])
            weights = member.model.state_dict()
            tensors.update({f"{place}.{name}": tensor for name, tensor in weights.items()})
        return tensor_digest(tensors, plain)

    @torch.no_grad()
    def proposal(self, x: Float[Tensor, "B D"]) -> Float[Tensor, " B"]:
        """Return log densities of the proposal alone.

        Parameters
        ----------
        x
            rows in the units of the table.
        """
        return mixture_log_prob(torch.stack([m.log_proposal(x).sum(-1) for m in self.members]))

    @torch.no_grad()
    def quadrature(self, x: Float[Tensor, "B D"], settings: Quadrature) -> Exact:
        """Compute log densities by quadrature, with their errors.

        Parameters
        ----------
        x
            rows in the units of the table, on the models' device.
        settings
            how exactly, and with how much memory.
        """
        scores = [m.scores(x, settings) for m in self.members]
        total = torch.stack([s.log_prob.sum(-1) for s in scores])
        reached = torch.stack([s.within_reach for s in scores])
        error = torch.stack([s.error.sum(-1) for s in scores])
        nodes = torch.stack([s.nodes.double().mean(-1) for s in scores])
        return Exact(
            mixture_log_prob(total),
            mixture_error(total, error),
            mixture_log_prob(reached),
            nodes.mean(0),
        )

    def quadrature_by_row(
        self, x: Float[Tensor, "B D"], settings: Quadrature
    ) -> dict[str, Float[Tensor, " B"]]:
        """Return the details of the quadrature by row, NaN for rows without a density.

        Parameters
        ----------
        x
            rows in the units of the table.
        settings
            how exactly, and with how much memory.

        Returns
        -------
        dict of tensor [B]
            the fields of `Exact` by name.
        """
        exists = ~self.without_density(x)
        found = vars(self.quadrature(x[exists], settings))
        return {name: by_row(values, exists, torch.nan) for name, values in found.items()}

    def without_density(self, x: Float[Tensor, "B D"]) -> Bool[Tensor, " B"]:
        """Return which rows some member has no density for, as the paper's literal energy allows.

        Parameters
        ----------
        x
            rows in the units of the table.
        """
        each = [without_density(m.exact, m.transform.forward(x)) for m in self.members]
        return torch.stack(each).any(0)

    def importance(
        self, x: Float[Tensor, "B D"], samples: int, seed: int = 0, report: Report = silent
    ) -> Estimate:
        """Estimate log densities as the paper does, with other draws for every member.

        Parameters
        ----------
        x
            rows in the units of the table.
        samples
            S, draws of the proposal per conditional.
        seed
            seed of the draws.
        report
            called as `report(what, done, total)` while the work goes on.
        """
        total, bias = [], []
        for place, member in enumerate(self.members):
            scores = importance_scores(
                member.model,
                member.transform.forward(x),
                samples=samples,
                seed=seed * len(self.members) + place,
                memory=self.memory,
                report=part_of(report, place, len(self.members)),
            )
            terms = member.with_estimated_cells(scores.log_prob, x, scores.log_z)
            total.append((terms + member.transform.log_slopes(x)).sum(-1))
            bias.append(scores.bias.sum(-1))
        log_prob = torch.stack(total)
        return Estimate(mixture_log_prob(log_prob), mixture_error(log_prob, torch.stack(bias)))

    def fit_kde(
        self,
        validation: Float[Tensor, "B D"],
        samples: int,
        seed: int = 0,
        report: Report = silent,
    ) -> list[KDE]:
        """Fit each member's bandwidth and weight of the proposal on validation rows.

        Parameters
        ----------
        validation
            rows in the units of the table that no member was trained on.
        samples
            S, kernels per conditional.
        seed
            seed of the positions of the kernels.
        report
            called as `report(what, done, total)` while the work goes on.
        """
        if self.no_kernels:
            raise AemError(self.no_kernels)
        members = len(self.members)
        return [
            fit_kde(
                m.model,
                m.transform.forward(validation),
                samples=samples,
                seed=seed,
                memory=self.memory,
                report=part_of(report, place, members),
            )
            for place, m in enumerate(self.members)
        ]

    def kde(
        self, kernels: Sequence[KDE], x: Float[Tensor, "B D"], report: Report = silent
    ) -> Float[Tensor, " B"]:
        """Return log densities by AEM-KDE, a kernel density estimate of the model.

        Parameters
        ----------
        kernels
            what `fit_kde` returned.
        x
            rows in the units of the table.
        report
            called as `report(what, done, total)` while the work goes on.
        """
        parts = []
        for place, (kernel, m) in enumerate(zip(kernels, self.members, strict=True)):
            told = part_of(report, place, len(self.members))
            read = m.transform.forward(x)
            terms = kernel.log_prob(m.model, read, memory=self.memory, report=told)
            parts.append((terms + m.transform.log_slopes(x)).sum(-1))
        return mixture_log_prob(torch.stack(parts))
