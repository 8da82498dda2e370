"""The panel of the least likely rows, with the columns responsible and what would be likely there."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aem.base.progress import Report, named
from aem.conditionals.conditional import Conditional
from aem.conditionals.normalizer import Quadrature
from aem.report.numbers import short, shorts
from aem.tables.discrete import Discrete
from aem.tables.model import TOLERANCE, ColumnMap, TableModel
from aem.tables.queries.explain import explain

Array = NDArray[np.float64]
RowColumn = tuple[int, int]  # row and column
ConditionalPlot = dict[str, Any]

BLAMED = 3  # columns that are shown per row
POINTS = 61  # points of a plotted conditional
MOST_CELLS = 40  # largest number of values of a discrete column that are plotted as bars
OUTER = (0.002, 0.998)  # quantiles that a plot covers, besides the value of the row


def surprises(
    table: TableModel, x: Array, numbers: NDArray[np.int64], report: Report
) -> list[dict[str, Any]]:
    """Return a record of each of some rows: its score, and the columns that make it unlikely.

    Parameters
    ----------
    table
        the model, whose columns stand as it reads them.
    x
        the rows [B, D].
    numbers
        their numbers in the whole table [B].
    report
        called as `report(what, done, total)` while the work goes on.
    """
    explained = explain(table, x, named(report, "explanations"))
    blamed = np.argsort(-explained.surprise, axis=1, kind="stable")[:, :BLAMED]
    pictures = _pictures(table, x, explained.context, blamed)
    records = []
    for i, number in enumerate(numbers.tolist()):
        records.append(
            {
                "row": int(number),
                "log_density": short(float(explained.scores.total[i]), 8),
                "error": short(float(explained.scores.error[i]), 2),
                "values": shorts(x[i], 7),
                "blame": [
                    {
                        "column": d,
                        "value": short(float(x[i, d]), 7),
                        "log_density": short(float(explained.scores.log_density[i, d])),
                        "surprise": short(float(explained.surprise[i, d]), 4),
                        "median": short(float(explained.median[i, d])),
                        "likely": [shorts(interval) for interval in explained.regions[i][d]],
                        "picture": pictures[i, d],
                    }
                    for d in blamed[i].tolist()
                ],
            }
        )
    return records


@torch.no_grad()
def _pictures(
    table: TableModel, x: Array, context: Array, blamed: NDArray[np.int64]
) -> dict[RowColumn, ConditionalPlot]:
    """Return plots of the conditional distributions of rows in the columns `blamed` [B, T].

    Each plot extends to the value of its row. All rows with the same column are computed together.
    """
    discrete = {column.column: column for column in table.discrete}
    result: dict[RowColumn, ConditionalPlot] = {}
    for d in np.unique(blamed).tolist():
        which = np.flatnonzero((blamed == d).any(1))
        rows = table.read(context[which])
        conditional = table.exact().conditionals(rows, Quadrature(tolerance=TOLERANCE))[d]
        units = table.column(d)
        low, high = map(units.inverse, conditional.quantile(torch.tensor(OUTER)).cpu().numpy().T)
        low, high = np.minimum(low, x[which, d]), np.maximum(high, x[which, d])
        own = discrete.get(table.columns[d])
        if own is not None and (high - low).max() / own.step < MOST_CELLS:
            pictures = _cells(conditional, own, units, low, high)
        else:
            pictures = _densities(conditional, units, low, high)
        result |= {(i, d): picture for i, picture in zip(which.tolist(), pictures, strict=True)}
    return result


def _densities(
    conditional: Conditional, units: ColumnMap, low: Array, high: Array
) -> list[ConditionalPlot]:
    """Return densities on grids from low to high [B]."""
    margin = 0.04 * (high - low)
    grid = np.linspace(low - margin, high + margin, POINTS, axis=-1)
    density = conditional.density(torch.tensor(units.forward(grid))).cpu().numpy()
    density *= np.exp(units.log_slope(grid))
    return [
        {"kind": "density", "at": shorts(at), "height": shorts(height, 3)}
        for at, height in zip(grid, density, strict=True)
    ]


def _cells(
    conditional: Conditional, column: Discrete, units: ColumnMap, low: Array, high: Array
) -> list[ConditionalPlot]:
    """Return probabilities of discrete values between low and high [B]."""
    low, high = column.centre(low), column.centre(high)
    count = round(float((high - low).max()) / column.step) + 1
    centres: Array = low[:, None] + column.step * np.arange(count, dtype=np.float64)
    ends = (column.origin - 0.5 * column.step, column.origin + column.step * (column.cells - 0.5))
    edges = np.hstack(
        (
            centres - 0.5 * column.step,
            centres[:, -1:] + 0.5 * column.step,
            np.tile(ends, (len(low), 1)),
        )
    )
    level = conditional.cdf(torch.tensor(units.forward(edges))).cpu().numpy()
    mass = np.diff(level[:, :-2]).clip(min=0)
    if column.bounded:
        # Corrected between observed values and those beyond, as in scores.
        inside = np.clip(level[:, -1:] - level[:, -2:-1], 1e-12, 1 - 1e-12)
        seen, beyond = (1 - column.beyond) / inside, column.beyond / (1 - inside)
        mass *= np.where(column.within(centres), seen, beyond)
    pictures = []
    for at, height, last in zip(centres, mass, high, strict=True):
        own = at < last + 0.5 * column.step
        pictures.append({"kind": "cells", "at": shorts(at[own]), "height": shorts(height[own], 3)})
    return pictures
