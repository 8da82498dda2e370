"""The calibration panel: PIT values, the positions of values in their conditional distributions.

They are uniform if the model is right. A discrete value has an interval of them, the probability of
its cell, of which a random point is taken; these points are uniform again.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom, kstest

from aem.base.progress import Report
from aem.conditionals.conditional import Conditional
from aem.conditionals.normalizer import Quadrature
from aem.report.numbers import short, shorts
from aem.tables.discrete import Discrete
from aem.tables.model import TOLERANCE, TableModel

Array = NDArray[np.float64]

NUMBERS = 2**21  # mixture parameters in memory at a time
DOUBT = 0.01  # probability that any column of a right model is called miscalibrated


@torch.no_grad()
def pit_values(table: TableModel, x: Array, rng: np.random.Generator, report: Report) -> Array:
    """Return F(x_d | x_<d) for every row and column.

    For a discrete value it is a random point of the interval of its cell.

    Parameters
    ----------
    table
        the model, whose columns stand as it reads them.
    x
        rows in the units of the table [B, D].
    rng
        generator of the random points.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    known = {column.column: column for column in table.cells}
    columns = len(table.columns)
    block = min(max(NUMBERS // (columns * table.model.config.components * 8), 8), 128)
    parts = []
    for start in range(0, len(x), block):
        rows = table.read(x[start : start + block])
        conditionals = table.exact().conditionals(rows, Quadrature(tolerance=TOLERANCE))
        values = []
        for name, conditional in zip(table.columns, conditionals, strict=True):
            own = known.get(name)
            if own is None:
                values.append(conditional.pit().cpu().numpy())
            else:
                d = len(values)
                values.append(_randomised(conditional, own, rows[:, d].cpu().numpy(), rng))
        parts.append(np.stack(values, -1))
        report("calibration", min(start + block, len(x)), len(x))
    found: Array = np.concatenate(parts).clip(0, 1)
    return found


def _randomised(
    conditional: Conditional, column: Discrete, x: Array, rng: np.random.Generator
) -> Array:
    """Return a random point of the probability interval of each discrete value."""
    half = column.step / 2
    centre = column.centre(x)
    ends = [
        centre - half,
        centre + half,
        np.full_like(x, column.origin - half),
        np.full_like(x, column.origin + column.step * (column.cells - 0.5)),
    ]
    low, high, first, last = conditional.cdf(torch.tensor(np.stack(ends, -1))).cpu().numpy().T
    if column.bounded:
        # 1 − ε belongs to the observed range, and ε to both sides in proportion.
        seen = column.within(x)
        below = column.beyond * first / (first + 1 - last).clip(min=1e-300)
        inside = (last - first).clip(min=1e-300)

        def within(u: Array) -> Array:
            spread: Array = below + (1 - column.beyond) * (u - first) / inside
            return spread

        low, high = np.where(seen, within(low), low), np.where(seen, within(high), high)
    drawn: Array = low + (high - low) * rng.random(len(x))
    return drawn


def calibration_record(u: Array) -> dict[str, Any]:
    """Describe PIT values by column: histograms with the range of chance, and a test of uniformity.

    Parameters
    ----------
    u
        PIT values [B, D].
    """
    rows, columns = u.shape
    bins = 20 if rows >= 200 else 10
    low, high = binom.ppf((0.025, 0.975), rows, 1 / bins) / rows
    records = []
    for d in range(columns):
        counts, _ = np.histogram(u[:, d], bins, (0, 1))
        test = kstest(u[:, d], "uniform")
        records.append(
            {
                "shares": shorts(counts / rows, 4),
                "distance": short(float(test.statistic), 3),
                "p": short(float(test.pvalue), 3),
                # Corrected for the number of columns (Bonferroni).
                "off": bool(test.pvalue * columns < DOUBT),
                "shape": _shape(u[:, d]),
            }
        )
    return {
        "rows": rows,
        "edges": shorts(np.linspace(0, 1, bins + 1)),
        "band": shorts((low, high), 4),
        "columns": records,
    }


def _shape(u: Array) -> str:
    """Say in words how the values differ from the uniform distribution."""
    sure = 3 / math.sqrt(12 * len(u))
    if u.mean() > 0.5 + sure:
        return "values lie higher than the model expects"
    if u.mean() < 0.5 - sure:
        return "values lie lower than the model expects"
    spread = float(np.abs(u - 0.5).mean())
    if spread > 0.25 + sure / 2:
        return "values scatter more than the model expects"
    if spread < 0.25 - sure / 2:
        return "values scatter less than the model expects"
    return "the shape differs in detail"
