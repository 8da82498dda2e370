"""Scores of a table: estimates for many rows, to find the lowest, and exact ones for some."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aem.base.progress import Report, named
from aem.base.randomness import seeded
from aem.conditionals.normalizer import Quadrature
from aem.model.scoring import score_block
from aem.report.histograms import distribution
from aem.report.limits import Limits
from aem.report.numbers import short
from aem.tables.model import TOLERANCE, ColumnScores, TableModel

Array = NDArray[np.float64]

NODES = 32  # nodes per conditional of an estimate
BLOCK = 512
CANDIDATES = 3  # rows that are scored exactly for each row that is listed


@dataclass(frozen=True)
class ReportScores:
    """The rows that were scored for a report, with their scores.

    Parameters
    ----------
    typical
        numbers of the rows scored at random.
    scores
        log densities of those rows.
    odd
        numbers of the rows with the lowest scores of all, the lowest first.
    screened
        how many rows were looked at to find those.
    """

    typical: NDArray[np.int64]
    scores: ColumnScores
    odd: NDArray[np.int64]
    screened: int


def score_table(
    table: TableModel, x: Array, limits: Limits, rng: np.random.Generator, report: Report
) -> ReportScores:
    """Score a random part of the rows, and find the lowest of all.

    Parameters
    ----------
    table
        the model that is reported on.
    x
        rows in the units of the table [B, D].
    limits
        how many rows to score, and how many to estimate.
    rng
        decides which rows are scored.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    typical = np.sort(rng.choice(len(x), limits.scored, replace=False))
    scores = table.score(x[typical], named(report, "scores"))
    known = dict(zip(typical.tolist(), scores.total.tolist(), strict=True))
    screened = len(x)
    if limits.scored < len(x):
        looked_at = np.sort(rng.choice(len(x), limits.screened, replace=False))
        screened = len(looked_at)
        estimate = screen(table, x[looked_at], report)
        candidates = looked_at[np.argsort(estimate)[: CANDIDATES * limits.listed]]
        unknown = np.array([i for i in candidates.tolist() if i not in known], dtype=np.int64)
        if len(unknown):
            exact = table.score(x[unknown], named(report, "odd rows")).total
            known.update(zip(unknown.tolist(), exact.tolist(), strict=True))
    order = sorted(known, key=known.__getitem__)
    return ReportScores(typical, scores, np.array(order[: limits.listed], dtype=np.int64), screened)


@torch.no_grad()
def screen(table: TableModel, x: Array, report: Report) -> Array:
    """Estimate the log density of each row from a few nodes per conditional.

    Parameters
    ----------
    table
        the model that is reported on.
    x
        rows in the units of the table [B, D].
    report
        called as `report(what, done, total)` while the work goes on.
    """
    model = table.model.eval()
    distribution_ = model()
    device = model.device
    parts = []
    with seeded(0, device):
        for start in range(0, len(x), BLOCK):
            some = torch.tensor(x[start : start + BLOCK], device=device)
            rows = table.transform.forward(some).to(model.dtype)
            terms, _ = distribution_.estimate(rows, None, NODES)
            total = terms.sum(-1).double() + table.transform.log_det(some)
            parts.append(total.cpu().numpy())
            report("screening", min(start + BLOCK, len(x)), len(x))
    found: Array = np.nan_to_num(np.concatenate(parts), nan=-np.inf)
    return found


def scores_record(found: ReportScores, samples: ColumnScores) -> dict[str, Any]:
    """Describe the distribution of log densities, of data beside samples.

    Parameters
    ----------
    found
        scores of rows of the table.
    samples
        scores of rows drawn from the model.
    """
    total = found.scores.total
    return {
        **distribution({"data": total, "samples": samples.total}),
        "rows": len(total),
        "samples": len(samples.total),
        "mean": short(float(total.mean()), 8),
        "mean_samples": short(float(samples.total.mean()), 8),
        "lowest": short(float(total.min()), 8),
    }


@torch.no_grad()
def normaliser_record(
    table: TableModel, x: Array, found: ReportScores, limits: Limits
) -> dict[str, Any]:
    """Describe the errors of scores, and the number of nodes of their normalisers.

    Parameters
    ----------
    table
        the model that is reported on.
    x
        rows in the units of the table [B, D].
    found
        what `score_table` returned for the rows.
    limits
        numbers of rows, such as those whose nodes are counted.
    """
    error = found.scores.error
    some = table.read(x[found.typical[: limits.counted]])
    detail = score_block(table.exact, some, None, Quadrature(tolerance=TOLERANCE))
    nodes = detail.nodes.double().cpu().numpy()
    return {
        "tolerance": TOLERANCE,
        "errors": distribution({"error": error}, logarithmic=True),
        "rows": len(error),
        "mean_error": short(float(error.mean()), 3),
        "largest_error": short(float(error.max()), 3),
        "exact": int((error == 0).sum()),
        "missed": int((error > TOLERANCE).sum()),
        "nodes": distribution({"nodes": nodes.reshape(-1)}, logarithmic=True),
        "counted": len(nodes),
        "mean_nodes": short(float(nodes.mean()), 4),
        "most_nodes": int(nodes.max()),
        "columns": [
            {"nodes": short(float(n), 4), "log_z": short(float(z), 4)}
            for n, z in zip(nodes.mean(0), detail.log_z.mean(0).cpu().numpy(), strict=True)
        ],
    }
