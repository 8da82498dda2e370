"""How normal a row is: the worst of three views of it, as there is more than one way to be odd.

The log density is the sharpest view: it sees combinations that do not occur. But where columns
nearly determine each other it is all about the last few thousandths of them, and a row that is odd
in a way anybody would see may pass. So two coarser views are taken, too: the density blurred by one
standard deviation of each column, and the densities of the columns by themselves. Each view is
measured in its own spread over the fitted rows, and the lowest of the three is the row's score.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aem.base.randomness import some_rows
from aem.model.mixture import JointMixture
from aem.tables.model import TableModel

Array = NDArray[np.float64]

BLUR = 1.0  # deviations
MOST_ROWS = 1000  # that tell the spread of a view
OUTER = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Normality:
    """Scores how normal rows are: a fitted table, with the median and the spread of each view of rows.

    Parameters
    ----------
    table
        the fitted density, whose proposal is anchored to a joint mixture.
    middle
        median of each of the three views over rows like the fitted [3].
    spread
        distance between the quartiles of each [3].
    """

    table: TableModel
    middle: Array
    spread: Array

    @classmethod
    def of(cls, table: TableModel, rows: Array) -> "Normality":
        """Take median and spread of each view from rows; outliers among them hardly matter.

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
        """Return how normal each row is: about zero amid the fitted rows, negative for odd ones.

        Parameters
        ----------
        x
            rows in the units of the table [B, D].
        """
        score: Array = ((_looks(self.table, x) - self.middle) / self.spread).min(1)
        return score


def _looks(table: TableModel, x: Array) -> Array:
    """Return the three views of rows, log densities [B, 3]: as it is, blurred, and column by column."""
    model = table.exact
    joint = JointMixture(*model.head.anchored_to())
    z = model.standardise(table.read(x)).cpu().numpy()
    return np.stack(
        (table.score(x).total, joint.blurred(BLUR).log_prob(z), joint.by_column(z).sum(1)), axis=1
    )
