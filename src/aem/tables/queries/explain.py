"""Explanations: which columns make a row unlikely, given earlier columns, and what would be likely.

By the chain rule a row's log density is a sum of one term per column. A term depends on the column's
unit and on how predictable the column is. A column is therefore judged by its *surprise*: how many
nats its term lies below the average there, E[log p(X_d | x_<d)] − log p(x_d | x_<d).

After an outlier in one column, predictions for later columns mean little, because the model has seen
no such row. An outlying value is therefore replaced by the mode of its conditional as input for later
columns, if this makes them more likely. If later columns agree with the value, as all sizes of
something large do, it is kept. The terms are always those of the row as it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from aem.base.progress import Report, silent
from aem.conditionals.tabulated import LEVELS, Interval, TabulatedConditionals, tabulate
from aem.errors import AemError
from aem.tables.model import ColumnScores, TableModel

Array = NDArray[np.float64]

MASS = 0.9  # probability of the region of likely values
NUMBERS_AT_A_TIME = 2**22
ODD = 6.0  # surprise of an outlier in nats; 3.6 standard deviations of a normal distribution


@dataclass(frozen=True)
class Explanation:
    """Explanations of B rows by their D columns.

    Parameters
    ----------
    scores
        log densities by column, and the error of each row.
    surprise
        how many nats each column's log density lies below the average there [B, D].
    median
        the median of what could have stood there [B, D].
    regions
        the 90 % highest-density region by row and column: a list of intervals (low, high).
    context
        the rows with outliers replaced, from which surprises, medians and regions follow [B, D].
    """

    scores: ColumnScores
    surprise: Array
    median: Array
    regions: list[list[list[Interval]]]
    context: Array

    def reordered(self, places: Sequence[int]) -> "Explanation":
        """Return the same explanation with its columns in another order.

        Parameters
        ----------
        places
            for each column of the result, the number of the column it is now.
        """
        return Explanation(
            ColumnScores(self.scores.log_density[:, places], self.scores.error),
            self.surprise[:, places],
            self.median[:, places],
            [[regions[place] for place in places] for regions in self.regions],
            self.context[:, places],
        )


def explain(table: TableModel, x: ArrayLike, report: Report = silent) -> Explanation:
    """Explain every column of rows, given the columns that the model reads before it.

    Parameters
    ----------
    table
        the model; its columns must not be mixed, as a symmetry mixes them.
    x
        rows: an array, or a data frame, whose columns are matched by name.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    if table.mixes:
        raise AemError("this model mixes its columns: none of them can be explained by itself")
    x = table.rows(x)
    own = table.in_order(table.model.columns)
    there = [table.columns.index(name) for name in own.columns]
    back = [own.columns.index(name) for name in table.columns]
    found = _explain(own, x[:, there], report)
    return found if own is table else found.reordered(back)


def _explain(table: TableModel, x: Array, report: Report) -> Explanation:
    """Explain rows whose columns are in the order of the model."""
    scores = table.score(x, report)
    columns = len(table.columns)
    surprise, median, context = np.empty_like(x), np.empty_like(x), x.copy()
    regions: list[list[list[Interval]]] = []
    block = max(NUMBERS_AT_A_TIME // (columns * LEVELS * table.model.head.terms), 1)
    for start in range(0, len(x), block):
        rows = np.arange(start, min(start + block, len(x)))
        regions += [[[] for _ in range(columns)] for _ in rows]
        log_density, settled = scores.log_density[rows], np.zeros(len(rows), dtype=int)
        while len(rows):
            found = _conditionals(table, context[rows])
            surprises, medians = found.mean_log_density() - log_density, found.medians()
            for i, (row, first) in enumerate(zip(rows, settled, strict=True)):
                surprise[row, first:] = surprises[i, first:]
                median[row, first:] = medians[i, first:]
                for d in range(first, columns):
                    regions[row][d] = found.highest_density_region(i, d, mass=MASS)
            odd = (surprises > ODD) & (np.arange(columns) >= settled[:, None])
            odd[:, -1] = False  # nothing comes after it
            again = np.flatnonzero(odd.any(1))
            first = odd[again].argmax(1)
            rows, settled = rows[again], first + 1
            mended = context[rows]
            mended[np.arange(len(rows)), first] = found.modes()[again, first]
            terms = table.score(mended).log_density
            after = np.arange(columns) >= settled[:, None]
            # Bounded, so that a second outlier among the later columns does not decide.
            change = (terms - log_density[again]).clip(-ODD, ODD)
            gains = np.where(after, change, 0.0).sum(1) > 0
            context[rows[gains]] = mended[gains]
            log_density = np.where(gains[:, None], terms, log_density[again])
        report("explanations", min(start + block, len(x)), len(x))
    for column in table.discrete:
        d = table.columns.index(column.column)
        median[:, d] = column.restore(median[:, d])
        for row_regions in regions:
            ends = column.restore(np.array(row_regions[d]).reshape(-1)).reshape(-1, 2)
            row_regions[d] = [(float(low), float(high)) for low, high in ends]
    return Explanation(scores, surprise, median, regions, context)


@torch.no_grad()
def _conditionals(table: TableModel, x: Array) -> TabulatedConditionals:
    """Tabulate the conditionals of rows [B, D], in the units of the table."""
    model = table.exact
    rows = table.read(x)
    z, mass = tabulate(model.conditionals(model.standardise(rows)).flatten())
    shape = (*x.shape, -1)
    units = model.standardisation
    read = z.reshape(shape) * units.scale[:, None] + units.centre(rows)[..., None]
    # Every point of a column's grid is inverted by itself, as columns are transformed one by one.
    grid = table.transform.inverse(read.transpose(-1, -2)).transpose(-1, -2)
    return TabulatedConditionals(grid.cpu().numpy(), mass.reshape(shape).cpu().numpy())


def as_columns(
    table: TableModel, x: Array, explanation: Explanation, top: int, labels: Sequence[Any]
) -> dict[str, list[Any]]:
    """Return a table of the most surprising columns of each row, the worst first.

    Parameters
    ----------
    table
        the model that explained the rows.
    x
        the rows [B, D].
    explanation
        what `explain` returned for them.
    top
        how many columns of each row, at most.
    labels
        a label per row, such as its number.

    Returns
    -------
    dict of lists
        the columns of the table, named as in `COLUMNS`: one line per row and explained column.
    """
    if top < 1:
        raise AemError(f"the number of columns to explain must be positive, not {top}")
    top = min(top, len(table.columns))
    lines: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row, total in enumerate(explanation.scores.total):
        order = np.argsort(-explanation.surprise[row], kind="stable")[:top]
        for rank, d in enumerate(order):
            region = explanation.regions[row][d]
            values = (
                labels[row],
                float(total),
                rank + 1,
                table.columns[d],
                float(x[row, d]),
                float(explanation.scores.log_density[row, d]),
                float(explanation.surprise[row, d]),
                float(explanation.median[row, d]),
                region[0][0],
                region[-1][1],
                " or ".join(_interval(low, high) for low, high in region),
            )
            for name, value in zip(COLUMNS, values, strict=True):
                lines[name].append(value)
    return lines


def _interval(low: float, high: float) -> str:
    """Write an interval with six digits, and more where those would not tell its ends apart."""
    size, width = max(abs(low), abs(high)), high - low
    digits = 6 if width == 0 else min(max(6, 3 + math.ceil(math.log10(size / width))), 17)
    return f"{low:.{digits}g} … {high:.{digits}g}"


COLUMNS = (
    "row",
    "log_density",  # of the whole row
    "rank",
    "column",
    "value",
    "column_log_density",
    "surprise",
    "median",
    "likely_low",
    "likely_high",
    "likely",  # the 90 % highest-density region, in several pieces if it has them
)
