"""Histograms of columns and scores."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from aem.report.numbers import short, shorts, shown_range
from aem.tables.discrete import Discrete

Array = NDArray[np.float64]

FEWEST_BINS, MOST_BINS = 12, 48
CHANCE = 1.358  # the Kolmogorov–Smirnov distance stays below this over √n in 19 of 20 cases


def bin_edges(low: float, high: float, x: Array, discrete: Discrete | None = None) -> Array:
    """Return the edges of bins by Freedman and Diaconis, or whole cells of a discrete column.

    Parameters
    ----------
    low
        where the first bin begins.
    high
        where the last bin ends.
    x
        the values, which the width follows from.
    discrete
        the column, if it is discrete.
    """
    if discrete is not None:
        first, last = discrete.centre(np.array([low, high])).tolist()
        cells = round((last - first) / discrete.step) + 1
        together = math.ceil(cells / MOST_BINS)
        bins = math.ceil(cells / together)
        cell_edges: Array = first + discrete.step * (together * np.arange(bins + 1) - 0.5)
        return cell_edges
    spread = float(np.subtract(*np.percentile(x, (75, 25))))
    width = 2 * spread / len(x) ** (1 / 3)
    bins = round((high - low) / width) if width > 0 else MOST_BINS
    return np.linspace(low, high, min(max(bins, FEWEST_BINS), MOST_BINS) + 1)


def shares(x: Array, edges: Array) -> list[float | None]:
    """Return the share of all values that lies in each bin.

    Parameters
    ----------
    x
        the values [B].
    edges
        edges of the bins [E].
    """
    return shorts(np.histogram(x, edges)[0] / max(len(x), 1), 4)


def marginal(data: Array, samples: Array, discrete: Discrete | None) -> dict[str, Any]:
    """Describe one column of data and samples, and how far apart they are.

    Parameters
    ----------
    data
        values of the table [B].
    samples
        values drawn from the model [S].
    discrete
        the column, if it is discrete.
    """
    low, high = shown_range(data, samples)
    edges = bin_edges(low, high, data, discrete)
    beyond = [float(((x < edges[0]) | (x > edges[-1])).mean()) for x in (data, samples)]
    return {
        "edges": shorts(edges, 7),
        "data": shares(data, edges),
        "samples": shares(samples, edges),
        "beyond": shorts(beyond, 3),
        "distance": short(float(ks_2samp(data, samples).statistic), 3),
        "chance": short(CHANCE * math.sqrt(1 / len(data) + 1 / len(samples)), 3),
    }


def distribution(values: dict[str, Array], *, logarithmic: bool = False) -> dict[str, Any]:
    """Describe several sets of numbers by histograms on one axis.

    Parameters
    ----------
    values
        sets of numbers by name; what is not finite is left out.
    logarithmic
        whether the axis is one of powers of ten.
    """
    finite = {name: x[np.isfinite(x) & ((x > 0) | (not logarithmic))] for name, x in values.items()}
    finite = {name: x for name, x in finite.items() if len(x)}
    if not finite:
        return {"edges": [], "logarithmic": logarithmic, "series": {}}
    if logarithmic:
        finite = {name: np.log10(x) for name, x in finite.items()}
        low = min(float(x.min()) for x in finite.values())
        high = max(float(x.max()) for x in finite.values())
        low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    else:
        low, high = shown_range(*finite.values())
    edges = bin_edges(low, high, np.concatenate(list(finite.values())))
    return {
        "edges": shorts(10**edges if logarithmic else edges, 7),
        "logarithmic": logarithmic,
        "series": {name: shares(x, edges) for name, x in finite.items()},
        "beyond": {
            name: short(float(((x < edges[0]) | (x > edges[-1])).mean()), 3)
            for name, x in finite.items()
        },
    }
