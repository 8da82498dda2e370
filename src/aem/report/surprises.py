"""The most surprising rows, the columns to blame, and what would have been likely there."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aem.conditional import Conditional
from aem.discrete import Discrete
from aem.explain import explain
from aem.normalizers import Quadrature
from aem.report.numbers import short, shorts
from aem.tablemodel import TOLERANCE, Report, TableModel

Array = NDArray[np.float64]

BLAMED = 3  # columns a row
POINTS = 61  # of a drawn conditional
MOST_CELLS = 40  # values of a discrete column drawn one by one
OUTER = (0.002, 0.998)  # quantiles a drawn conditional reaches from and to, and to the value


def surprises(
    table: TableModel, x: Array, numbers: NDArray[np.int64], report: Report
) -> list[dict[str, Any]]:
    """One record for each of the rows x, whose numbers in the table are given."""
    explained = explain(table, x, lambda _, done, total: report("explanations", done, total))
    records = []
    for i, number in enumerate(numbers.tolist()):
        order = np.argsort(-explained.surprise[i], kind="stable")[:BLAMED]
        pictures = _pictures(table, x[i], order.tolist())
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
                        "picture": pictures[d],
                    }
                    for d in order.tolist()
                ],
            }
        )
    return records


@torch.no_grad()
def _pictures(table: TableModel, row: Array, columns: list[int]) -> dict[int, dict[str, Any]]:
    """The conditional distributions of some columns of a row, drawn so that its values are on them."""
    discrete = {column.column: column for column in table.discrete}
    rows = torch.tensor(row[None], device=table.model.shift.device)
    conditionals = table.exact().conditionals(rows, Quadrature(tolerance=TOLERANCE))
    result = {}
    for d in columns:
        conditional, own = conditionals[d], discrete.get(table.columns[d])
        low, high = conditional.quantile(torch.tensor(OUTER))[0].tolist()
        low, high = min(low, float(row[d])), max(high, float(row[d]))
        if own is not None and (high - low) / own.step < MOST_CELLS:
            result[d] = _cells(conditional, own, low, high)
            continue
        margin = 0.04 * (high - low)
        grid = torch.linspace(low - margin, high + margin, POINTS, dtype=torch.float64)
        density = conditional.density(grid)[0].tolist()
        result[d] = {"kind": "density", "at": shorts(grid.tolist()), "height": shorts(density, 3)}
    return result


def _cells(conditional: Conditional, column: Discrete, low: float, high: float) -> dict[str, Any]:
    """Probabilities of the values between low and high."""
    low, high = column.centre(np.array([low, high])).tolist()
    count = round((high - low) / column.step) + 1
    centres: Array = low + column.step * np.arange(count, dtype=np.float64)
    ends = (column.origin - 0.5 * column.step, column.origin + column.step * (column.cells - 0.5))
    edges = np.append(low + column.step * (np.arange(count + 1) - 0.5), ends)
    level = conditional.cdf(torch.tensor(edges))[0].cpu().numpy()
    mass = np.diff(level[:-2]).clip(min=0)
    if column.bounded:
        # Shared out anew between the values seen and those beyond, as scores do.
        inside = float(np.clip(level[-1] - level[-2], 1e-12, 1 - 1e-12))
        seen = (1 - column.beyond) / inside
        mass *= np.where(column.within(centres), seen, column.beyond / (1 - inside))
    return {"kind": "cells", "at": shorts(centres), "height": shorts(mass, 3)}
