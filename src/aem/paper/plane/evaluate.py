"""Scores of the test rows of a plane task, compared with the best possible ones."""

import time
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.base.files import finite
from aem.conditionals.normalizer import Quadrature
from aem.data.synthetic import PlaneTask
from aem.evaluation.resumable import Columns
from aem.evaluation.summary import (
    describe,
    describe_importance,
    describe_quadrature,
    difference,
    two_standard_errors,
)
from aem.model.aem import AEM
from aem.paper.plane.config import PlaneScoring
from aem.tables.model import TableModel
from aem.tables.scores import TableScores

MEMORY = {"cpu": 2**26, "cuda": 2**32}  # bytes an estimate may work with


def evaluate_plane(
    model: AEM,
    task: PlaneTask,
    test: NDArray[np.floating],
    device: torch.device,
    settings: PlaneScoring | None = None,
) -> dict[str, Any]:
    """Score test rows in every way, and compare the scores with the best possible.

    A gap is the mean over test rows of true minus model log density: the same expectation as limit
    − log-likelihood (a Kullback–Leibler divergence) with less noise, as both terms see the same
    rows. Rows where a literal energy has no finite normaliser have no density: as with tables they
    are counted, and left out of the quadrature's means. Estimates do not notice them.

    Parameters
    ----------
    model
        the trained model.
    task
        the task, whose density is known.
    test
        test rows [B, 2].
    device
        where the rows are scored.
    settings
        tolerance of the quadrature, draws of importance sampling; the defaults without any.
    """
    settings = settings or PlaneScoring()
    started = time.monotonic()
    scores = TableScores((TableModel(model.to(device)),), MEMORY[device.type])
    x = torch.from_numpy(test).to(device)
    truth = torch.from_numpy(task.log_prob(test))
    log_q = scores.proposal(x).cpu()
    exactly = Quadrature(tolerance=settings.tolerance)
    quadrature = _on_the_host(scores.quadrature_by_row(x, exactly))
    found = describe_quadrature(quadrature, log_q, settings.tolerance)
    found |= _gap(truth, quadrature["log_prob"])
    found["gap_within_reach"] = _gap(truth, quadrature["within_reach"])["gap"]
    record: dict[str, Any] = {
        "test_log_prob": found.get("mean"),
        "test_log_prob_2se": found.get("two_se"),
        "test_log_prob_error": found.get("error"),
        "test_log_prob_worst": found.get("worst"),
        "proposal_log_prob": float(log_q.mean()),
        "limit": -task.entropy(),
        "gap": found["gap"],
        "gap_2se": found["gap_2se"],
        "proposal_gap": float((truth - log_q).mean()),
        "rows_without_density": found["rows_without_density"],
        "proposal": describe(log_q) | _gap(truth, log_q),
        "quadrature": found,
        "importance": None,
    }
    if settings.importance_samples:
        estimated = _on_the_host(vars(scores.importance(x.double(), settings.importance_samples)))
        record["importance"] = (
            describe_importance(estimated, log_q, settings.importance_samples)
            | _gap(truth, estimated["log_prob"])
            | {"above_quadrature": difference(estimated, quadrature)}
        )
    record["evaluation_seconds"] = round(time.monotonic() - started, 2)
    return dict(finite(record))


def _on_the_host(columns: Columns) -> Columns:
    return {name: values.cpu().double() for name, values in columns.items()}


def _gap(truth: Float[Tensor, " B"], log_prob: Float[Tensor, " B"]) -> dict[str, float | None]:
    """Return the mean of true minus model log density, over rows with a density."""
    exists = ~log_prob.isnan()
    gap = (truth - log_prob)[exists].numpy()
    if not len(gap):
        return {"gap": None, "gap_2se": None}
    return {"gap": float(gap.mean()), "gap_2se": two_standard_errors(gap)}
