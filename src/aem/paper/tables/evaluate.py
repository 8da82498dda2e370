"""Every score of the validation and test rows of a trained model."""

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
    digest_of_members,
    digest_of_rows,
    remember,
    watching,
)
from aem.evaluation.side_by_side import settle
from aem.evaluation.summary import describe, describe_importance, describe_quadrature, difference
from aem.model.ensemble import Member
from aem.paper.tables.config import EvaluateConfig
from aem.paper.tables.scorer import QUADRATURE_NODES, Scorer

PROPOSAL_NODES = 16  # what the ARNN's pass costs, in energies a conditional


class Evaluator:
    """Scores splits of one table; what is done is kept in the folder."""

    def __init__(
        self,
        members: Sequence[Member],
        splits: TableSplits,
        settings: EvaluateConfig,
        folder: Path,
        report: Report = silent,
    ) -> None:
        self.scorer = Scorer(members, settings)
        self.splits = splits
        self.settings = settings
        self.folder = folder
        self.report = report
        self.model_digest = digest_of_members(members)

    def record(self) -> dict[str, Any]:
        """Both splits, and whether the quadrature held still."""
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
        settings, scorer = self.settings, self.scorer
        limit = len(table) if name == "test" else settings.validation_rows
        rows = torch.from_numpy(table).to(scorer.device)
        split: Fingerprint = {"model": self.model_digest, "rows": digest_of_rows(table)}

        def score(what: str, compute: Any, count: int, nodes: int, **own: Any) -> Columns:
            return accumulate(
                self.folder / f"{name}-{what}.safetensors",
                {**split, **own},
                rows[: min(count, limit) if what != "proposal" else None].double(),
                compute,
                block=scorer.block(nodes),
                grows=what == "quadrature",
                seconds=0 if what == "proposal" else settings.seconds,
                report=watching(self.report, f"{name}: {what}"),
            )

        proposal = score("proposal", scorer.proposal, len(rows), PROPOSAL_NODES)
        log_q = proposal["log_prob"]
        quadrature = score(
            "quadrature",
            scorer.quadrature,
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
                "importance", scorer.importance, settings.importance_rows, samples, samples=samples
            )
            record["importance"] = describe_importance(importance, log_q, samples) | {
                "above_quadrature": difference(importance, quadrature)
            }
        if settings.kde_rows:
            kernels = self._kernels()
            scored = score(
                "kde",
                lambda x, first: scorer.kde(kernels, x),
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

    def _kernels(self) -> list[KDE]:
        rows = self.splits.validation[: self.settings.kde_fit_rows]
        fingerprint: Fingerprint = {
            "model": self.model_digest,
            "rows": digest_of_rows(rows),
            "samples": self.settings.kde_samples,
        }

        def fit() -> dict[str, Any]:
            self.report("fitting AEM-KDE", 0, 1)
            kernels = self.scorer.fit_kernels(self._on_device(rows))
            self.report("fitting AEM-KDE", 1, 1)
            return {"kernels": [asdict(kernel) for kernel in kernels]}

        kept = remember(self.folder / "kernels.json", fingerprint, fit)
        return [KDE(**kernel) for kernel in kept["kernels"]]

    def _refinement(self) -> dict[str, Any]:
        """Score some test rows with more and more nodes: does the mean stay within its error?"""
        rows = self.splits.test[: self.settings.refinement_rows]
        fingerprint: Fingerprint = {
            "model": self.model_digest,
            "rows": digest_of_rows(rows),
            "tolerance": self.settings.tolerance,
        }

        def refine() -> dict[str, Any]:
            x = self._on_device(rows)
            x = x[~self.scorer.without_density(x)]
            if not len(x):
                return {"rows": 0, "held_still": None}
            tolerance, memory = self.settings.tolerance, self.scorer.memory
            settled = [
                settle(m.model, m.arrange(x), Quadrature(tolerance, memory=memory), self.report)
                for m in self.scorer.members
            ]
            worst = max(settled, key=lambda s: s.moved)
            record = {
                "rows": len(x),
                "held_still": all(s.held_still for s in settled),
                "moved": worst.moved,
                "claimed_error_before": worst.claimed,
                "largest_move_of_a_row": worst.worst_move,
                "rows_that_moved_beyond_their_error": worst.rows_beyond_error,
                "nodes_before": worst.nodes[0],
                "nodes_after": worst.nodes[1],
            }
            return dict(finite(record))

        return remember(self.folder / "refinement.json", fingerprint, refine)

    def _on_device(self, table: Table) -> Float[Tensor, "B D"]:
        return torch.from_numpy(table).to(self.scorer.device).double()


def _headline(test: dict[str, Any]) -> dict[str, Any]:
    """The figures every result file has, by the names all of them use."""
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
