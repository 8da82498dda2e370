"""Summaries of scores for result files: means with errors, and estimates for a whole split."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.evaluation.resumable import Columns
from aem.evaluation.side_by_side import summarise


def describe(
    log_prob: Float[Tensor, " N"], proposal: Float[Tensor, " B"] | None = None
) -> dict[str, Any]:
    """Return mean, two standard errors, median and worst row of the rows that have a density.

    Parameters
    ----------
    log_prob
        log densities of the first N rows of a split; NaN where there is no density.
    proposal
        those of the proposal on all B rows, if the mean over the whole split is to be estimated.
    """
    exists = ~log_prob.isnan()
    kept = log_prob[exists]
    record: dict[str, Any] = {"rows": len(log_prob), "rows_without_density": int((~exists).sum())}
    if not len(kept):
        return record
    labels = exists.nonzero()[:, 0].numpy()
    record |= {k: v for k, v in asdict(summarise(kept, labels)).items() if k != "rows"}
    if proposal is not None:
        beside = proposal[: len(log_prob)][exists]
        difference = summarise(kept - beside)
        record["above_proposal"] = difference.mean
        record["above_proposal_2se"] = difference.two_se
        record["whole_split"], record["whole_split_2se"] = whole_split(kept, beside, proposal)
    return record


def whole_split(
    ours: Float[Tensor, " N"], beside: Float[Tensor, " N"], theirs: Float[Tensor, " B"]
) -> tuple[float, float]:
    """Estimate the mean over B rows of a score that is known on N of them, with its error.

    Another score, such as the proposal's, is known on all rows and correlated with this one. Its mean
    over all rows plus the mean difference on N rows has a smaller error than the mean over N rows (a
    control variate).

    Parameters
    ----------
    ours
        the score, on N rows.
    beside
        the other score on the same rows.
    theirs
        the other score on all B rows.

    Returns
    -------
    mean : float
        the estimate of the mean over all B rows.
    two_se : float
        twice its standard error; NaN if N is one.
    """
    n, total = len(ours), len(theirs)
    difference = (ours - beside).double()
    mean = float(theirs.double().mean() + difference.mean())
    if n < 2:
        return mean, math.nan
    variance = ours.double().var() / total + difference.var() * max(1 / n - 1 / total, 0.0)
    return mean, 2 * float(variance.sqrt())


def mean_and_two_se(values: Float[Tensor, " N"]) -> tuple[float | None, float | None]:
    """Return the mean and twice its standard error, as JSON can hold them.

    Parameters
    ----------
    values
        one number per row.

    Returns
    -------
    mean : float or None
        None where a value is not finite.
    two_se : float or None
        None where the mean is, and for a single value.
    """
    x: NDArray[np.float64] = values.double().cpu().numpy()
    if not np.isfinite(x).all():
        return None, None
    return float(x.mean()), two_standard_errors(x) if len(x) > 1 else None


def describe_quadrature(
    columns: Columns, proposal: Float[Tensor, " B"], tolerance: float
) -> dict[str, Any]:
    """Describe scores by quadrature, with the errors that it states.

    Parameters
    ----------
    columns
        the fields of `Exact` on the first N rows of a split.
    proposal
        log densities of the proposal on all of its rows.
    tolerance
        the largest error that was asked for, in nats.
    """
    record = describe(columns["log_prob"], proposal)
    exists = ~columns["log_prob"].isnan()
    error = columns["error"][exists]
    if len(error):
        record |= {
            "error": float(error.mean()),
            "largest_error": float(error.max()),
            "rows_beyond_tolerance": int((error > tolerance).sum()),
            "within_reach": float(columns["within_reach"][exists].mean()),
            "nodes": float(columns["nodes"].nanmean()),
        }
    return record


def describe_importance(
    columns: Columns, proposal: Float[Tensor, " B"], samples: int
) -> dict[str, Any]:
    """Describe scores by importance sampling, with the noise and the upward bias of the samples.

    Parameters
    ----------
    columns
        the fields of `Estimate` on the first N rows of a split.
    proposal
        log densities of the proposal on all of its rows.
    samples
        draws per conditional that the scores took.
    """
    bias = float(columns["bias"].mean())
    noise = 2 * math.sqrt(2 * bias / len(columns["bias"])) if bias >= 0 else math.nan
    added = {"samples": samples, "bias": bias, "noise_2se": noise}
    return describe(columns["log_prob"], proposal) | added


def difference(one: Columns, other: Columns) -> dict[str, Any]:
    """Describe the first score minus the second on the rows that both have seen.

    Parameters
    ----------
    one
        columns with a `log_prob`.
    other
        columns with another.
    """
    rows = min(len(one["log_prob"]), len(other["log_prob"]))
    values = one["log_prob"][:rows] - other["log_prob"][:rows]
    values = values[values.isfinite()]
    if not len(values):
        return {"rows": 0}
    summary = summarise(values)
    return {"mean": summary.mean, "two_se": summary.two_se, "rows": len(values)}


def two_standard_errors(values: NDArray[np.float64]) -> float:
    """Return twice the standard error of the mean.

    Parameters
    ----------
    values
        two numbers at least.
    """
    return float(2 * values.std(ddof=1) / len(values) ** 0.5)
