"""The threshold of the outlier detector: the score below which a given share of rows lies.

Rows that a density was fitted to score higher than new rows, especially if there are few rows for the
number of columns. A threshold from their scores would flag too many new rows. It is therefore computed
from rows that the scoring model has not seen: by cross-validation on a small table, and from
validation rows and rows left out of the fit on a larger one.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from aem.tables.detector.normality import Normality
from aem.tables.fit.automatic import fit_table
from aem.tables.fit.settings import FitSettings
from aem.tables.model import TableModel

Array = NDArray[np.float64]

# Models of fewer rows score lower, so small tables have more folds.
FEW_ROWS, MANY_FOLDS, FOLDS = 600, 10, 4
MOST_ROWS = 1000  # per group; more hardly change the threshold


def scores_by_fold(rows: Array, kept: NDArray[np.bool_], fitted: TableModel) -> Array:
    """Score each row by a mixture fitted to the rows of other folds.

    Parameters
    ----------
    rows
        all training rows [B, D].
    kept
        which of them took part in the fit [B].
    fitted
        the model; its number of components and its seed are used again.
    """
    settings = FitSettings(components=fitted.about["mixture"]["components"], steps=0)
    seed = fitted.about["seed"]
    folds = MANY_FOLDS if len(rows) < FEW_ROWS else FOLDS
    fold = np.random.default_rng(seed).permutation(len(rows)) % folds
    scores = np.empty(len(rows))
    for f in range(folds):
        others = rows[kept & (fold != f)]
        again = fit_table(others, fitted.columns, settings=settings, seed=seed)
        scores[fold == f] = Normality.of(again.table, rows[fold != f]).score(rows[fold == f])
    return scores


def scores_of_groups(
    groups: list[tuple[Array, int]], score: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Score a sample of rows of each group, with weights for the size of the group.

    Parameters
    ----------
    groups
        pairs of rows [N, D] and the number of rows that they stand for.
    score
        the function that scores rows.

    Returns
    -------
    scores : array [M]
        scores of the rows that were chosen.
    weights : array [M]
        how many rows each of them stands for.
    """
    rng = np.random.default_rng(0)
    scores, weights = [], []
    for rows, stands_for in groups:
        count = min(len(rows), MOST_ROWS)
        if count:
            scores.append(score(rows[rng.choice(len(rows), count, replace=False)]))
            weights.append(np.full(count, stands_for / count))
    return np.concatenate(scores), np.concatenate(weights)


def quantile(scores: Array, weights: Array, share: float) -> float:
    """Return the score that a share of the rows lies below.

    Parameters
    ----------
    scores
        scores of rows [M].
    weights
        their weights [M].
    share
        the share, between 0 and 1.
    """
    order = np.argsort(scores)
    below = (np.cumsum(weights[order]) - 0.5 * weights[order]) / weights.sum()
    return float(np.interp(share, below, scores[order]))


def threshold(seen: Array, unseen: Array, share: float) -> float:
    """Choose the threshold of a small table.

    By convention exactly the given share of the training rows lies below it. If significantly more of
    the unseen rows would lie there, the share of the unseen rows decides.

    Parameters
    ----------
    seen
        scores of the rows by a model that was fitted to them.
    unseen
        scores of the same rows by models that were not.
    share
        the share of rows to call outliers.
    """
    exact = float(np.quantile(seen, share))
    noise = math.sqrt(share * (1 - share) / len(unseen))
    if float((unseen < exact).mean()) <= share + noise:
        return exact
    return quantile(unseen, np.ones(len(unseen)), share)
