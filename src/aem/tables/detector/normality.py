"""How normal a row is: the lowest of three scores, because there are several ways to be an outlier.

The log density detects combinations of values that do not occur. But where columns nearly determine
each other it depends on their smallest deviations, and may miss an obvious outlier. Two coarser scores
are therefore added: the density blurred by one standard deviation of each column, and the sum of the
columns' marginal log densities. Each score is divided by its spread over the fitted rows, and the
lowest of the three is the score of a row.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aem.base.randomness import some_rows
from aem.model.mixture import JointMixture
from aem.tables.model import TableModel

Array = NDArray[np.float64]

BLUR = 1.0  # standard deviations
MOST_ROWS = 1000  # rows from which the spread of a score is computed
OUTER = (0.25, 0.5, 0.75)  # quantiles


@dataclass(frozen=True)
class Normality:
    """Scores how normal rows are, by a fitted table and the median and spread of three scores.

    Parameters
    ----------
    table
        the fitted density, whose proposal is anchored to a joint mixture.
    middle
        median of each of the three scores over rows like the fitted [3].
    spread
        distance between the quartiles of each [3].
    """

    table: TableModel
    middle: Array
    spread: Array

    @classmethod
    def of(cls, table: TableModel, rows: Array) -> "Normality":
        """Compute median and spread of each score from rows, robustly against outliers.

        Parameters
        ----------
        table
            the fitted density.
        rows
            rows in the units of the table [B, D]; of many rows a thousand at random decide.
        """
        looks = _looks(table, some_rows(rows, MOST_ROWS))
        low, middle, high = np.quantile(looks, OUTER, axis=0)
        return cls(table, middle, np.where(high > low, high - low, 1.0))

    def score(self, x: Array) -> Array:
        """Return how normal each row is: about zero for typical rows, negative for outliers.

        Parameters
        ----------
        x
            rows in the units of the table [B, D].
        """
        score: Array = ((_looks(self.table, x) - self.middle) / self.spread).min(1)
        return score


def _looks(table: TableModel, x: Array) -> Array:
    """Return three scores of rows [B, 3]: log density, blurred, and by column."""
    model = table.exact
    joint = JointMixture(*model.head.anchored_to())
    z = model.standardise(table.read(x)).cpu().numpy()
    return np.stack(
        (table.score(x).total, joint.blurred(BLUR).log_prob(z), joint.by_column(z).sum(1)), axis=1
    )
