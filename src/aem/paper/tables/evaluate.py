"""All scores of the validation and test rows of a trained model."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.files import finite
from aem.base.progress import Report, silent
from aem.conditionals.normalizer import Quadrature
from aem.data.splits import Table, TableSplits
from aem.evaluation.kde import KDE
from aem.evaluation.resumable import (
    Columns,
    Fingerprint,
    accumulate,
    digest_of_rows,
    remember,
)
from aem.evaluation.side_by_side import settle
from aem.evaluation.summary import describe, describe_importance, describe_quadrature, difference
from aem.paper.tables.config import TableScoring
from aem.tables.model import TableModel
from aem.tables.scores import TableScores

MEMORY = {"cpu": 2**28, "cuda": 2**32}  # bytes of memory for a score
# Energies per block, between two checks of the time: about a second.
ENERGIES = {"cpu": 2**20, "cuda": 2**25}
QUADRATURE_NODES = 4000  # assumed nodes per conditional, as many as sharp energies need
PROPOSAL_NODES = 16  # cost of the autoregressive network, in energies per conditional


class Evaluator:
    """Scores the splits of a table, and keeps scores in files, so that it can continue.

    Parameters
    ----------
    members
        models of the table, whose mean density is scored.
    splits
        the table's validation and test rows are scored.
    settings
        how many rows each score sees.
    folder
        where scores are kept between runs.
    report
        called as `report(what, done, total)` while the work goes on.
    """

    def __init__(
        self,
        members: Sequence[TableModel],
        splits: TableSplits,
        settings: TableScoring,
        folder: Path,
        report: Report = silent,
    ) -> None:
        self.device = members[0].model.device
        self.memory = MEMORY[self.device.type]
        self.scores = TableScores(tuple(members), self.memory)
        self.splits = splits
        self.settings = settings
        self.folder = folder
        self.report = report
        self.model_digest = self.scores.digest()

    def record(self) -> dict[str, Any]:
        """Score both splits, and say whether the quadrature has converged."""
        started = time.monotonic()
        validation = self._split("validation", self.splits.validation)
        test = self._split("test", self.splits.test)
        refinement = self._refinement() if self.settings.refinement_rows else None
        record = {
            **_headline(test),
            "validation": validation,
            "test": test,
            "refinement": refinement,
            "evaluation_seconds": round(time.monotonic() - started, 2),
        }
        return dict(finite(record))

    def _split(self, name: str, table: Table) -> dict[str, Any]:
        settings, scores = self.settings, self.scores
        exactly = Quadrature(tolerance=settings.tolerance, memory=self.memory)
        limit = len(table) if name == "test" else settings.validation_rows
        rows = torch.from_numpy(table).to(self.device)
        split: Fingerprint = {"model": self.model_digest, "rows": digest_of_rows(table)}

        def score(what: str, compute: Any, count: int, nodes: int, **own: Any) -> Columns:
            return accumulate(
                self.folder / f"{name}-{what}.safetensors",
                {**split, **own},
                rows[: min(count, limit) if what != "proposal" else None].double(),
                compute,
                block=self._block(nodes),
                grows=what == "quadrature",
                seconds=0 if what == "proposal" else settings.seconds,
                report=self.report,
                what=f"{name}: {what}",
            )

        proposal = score(
            "proposal", lambda x, _: {"log_prob": scores.proposal(x)}, len(rows), PROPOSAL_NODES
        )
        log_q = proposal["log_prob"]
        quadrature = score(
            "quadrature",
            lambda x, _: scores.quadrature_by_row(x, exactly),
            settings.quadrature_rows,
            QUADRATURE_NODES,
            tolerance=settings.tolerance,
        )
        record: dict[str, Any] = {
            "rows": len(table),
            "proposal": describe(log_q),
            "quadrature": describe_quadrature(quadrature, log_q, settings.tolerance),
            "importance": None,
            "kde": None,
        }
        if settings.importance_rows:
            samples = settings.importance_samples
            importance = score(
                "importance",
                # Other draws for every block.
                lambda x, first: vars(scores.importance(x, samples, first)),
                settings.importance_rows,
                samples,
                samples=samples,
            )
            record["importance"] = describe_importance(importance, log_q, samples) | {
                "above_quadrature": difference(importance, quadrature)
            }
        if settings.kde_rows and not scores.no_kernels:
            kernels = self._kernels()
            scored = score(
                "kde",
                lambda x, _: {"log_prob": scores.kde(kernels, x)},
                settings.kde_rows,
                settings.kde_samples,
                kernels=[asdict(kernel) for kernel in kernels],
            )
            record["kde"] = describe(scored["log_prob"], log_q) | {
                "samples": settings.kde_samples,
                "fits": [asdict(kernel) for kernel in kernels],
                "fitted_on_rows": min(settings.kde_fit_rows, len(self.splits.validation)),
            }
        return record

    def _block(self, nodes: int) -> int:
        """Return how many rows are scored together, given the nodes per conditional."""
        features = len(self.scores.columns) * len(self.scores.members)
        return max(ENERGIES[self.device.type] // (features * nodes), 1)

    def _kernels(self) -> list[KDE]:
        rows = self.splits.validation[: self.settings.kde_fit_rows]
        fingerprint: Fingerprint = {
            "model": self.model_digest,
            "rows": digest_of_rows(rows),
            "samples": self.settings.kde_samples,
        }

        def fit() -> dict[str, Any]:
            self.report("fitting AEM-KDE", 0, 1)
            kernels = self.scores.fit_kde(self._on_device(rows), self.settings.kde_samples)
            self.report("fitting AEM-KDE", 1, 1)
            return {"kernels": [asdict(kernel) for kernel in kernels]}

        kept = remember(self.folder / "kernels.json", fingerprint, fit)
        return [KDE(**kernel) for kernel in kept["kernels"]]

    def _refinement(self) -> dict[str, Any]:
        """Score some test rows with more and more nodes, to check the error of the mean."""
        rows = self.splits.test[: self.settings.refinement_rows]
        fingerprint: Fingerprint = {
            "model": self.model_digest,
            "rows": digest_of_rows(rows),
            "tolerance": self.settings.tolerance,
        }

        def refine() -> dict[str, Any]:
            x = self._on_device(rows)
            x = x[~self.scores.without_density(x)]
            if not len(x):
                return {"rows": 0, "held_still": None}
            settings = Quadrature(self.settings.tolerance, memory=self.memory)
            settled = [
                settle(TableScores((member,), self.memory), x, settings, self.report)
                for member in self.scores.members
            ]
            worst = max(settled, key=lambda s: s.moved)
            record = {
                "rows": len(x),
                **worst.record(),
                "held_still": all(s.held_still for s in settled),
            }
            return dict(finite(record))

        return remember(self.folder / "refinement.json", fingerprint, refine)

    def _on_device(self, table: Table) -> Float[Tensor, "B D"]:
        return torch.from_numpy(table).to(self.device).double()


def _headline(test: dict[str, Any]) -> dict[str, Any]:
    """Return the main scores, by names that all result files share."""
    quadrature = test["quadrature"]
    return {
        "test_rows": quadrature["rows"],
        "test_log_prob": quadrature.get("mean"),
        "test_log_prob_2se": quadrature.get("two_se"),
        "test_log_prob_error": quadrature.get("error"),
        "test_log_prob_median": quadrature.get("median"),
        "test_log_prob_worst": quadrature.get("worst"),
        "proposal_log_prob": test["proposal"].get("mean"),
        "importance_log_prob": (test["importance"] or {}).get("mean"),
        "kde_log_prob": (test["kde"] or {}).get("mean"),
    }
