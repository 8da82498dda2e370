"""Numbers in the page: rounded, finite, and points packed as text."""

import base64
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVELS = 2**16 - 1  # levels of a packed coordinate; one further level means "outside the axis"
INNER = (0.5, 99.5)  # percentiles that the axis covers
MARGIN = 0.5  # fraction of their distance by which the axis is extended
REACH = 8  # largest distance from the quartiles, in interquartile ranges


def short(value: float, digits: int = 6) -> float | None:
    """Round a number to a few significant digits; None if it is not finite.

    Parameters
    ----------
    value
        a number, which need not be finite.
    digits
        how many significant digits.
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def shorts(values: Iterable[float], digits: int = 6) -> list[float | None]:
    """Round numbers to a few significant digits.

    Parameters
    ----------
    values
        numbers, which need not be finite.
    digits
        how many significant digits.
    """
    return [short(float(value), digits) for value in values]


def shown_range(*columns: Array) -> tuple[float, float]:
    """Return the range of an axis for data and samples, without values far from the rest.

    Parameters
    ----------
    columns
        the column in data, in samples, and so on.

    Returns
    -------
    low : float
        where the axis begins.
    high : float
        where it ends, above its beginning.
    """
    ends = [(float(c.min()), float(c.max()), *_inner(c)) for c in columns]
    low, high = min(e[2] for e in ends), max(e[3] for e in ends)
    reach = MARGIN * (high - low)
    low = max(min(e[0] for e in ends), low - reach)
    high = min(max(e[1] for e in ends), high + reach)
    if not high > low:
        wide = 0.5 * max(abs(low) * 1e-3, 1e-6) if low else 0.5
        return low - wide, high + wide
    return low, high


def _inner(x: Array) -> tuple[float, float]:
    low, first, third, high = np.percentile(x, (INNER[0], 25, 75, INNER[1])).tolist()
    reach = REACH * (third - first)
    # A column with mostly equal values has no interquartile range.
    return (max(low, first - reach), min(high, third + reach)) if reach > 0 else (low, high)


def pack(x: Array, ranges: list[tuple[float, float]]) -> str:
    """Return rows as base64 of 16-bit integers, column after column.

    Parameters
    ----------
    x
        rows [B, D].
    ranges
        the lowest and the highest number of each column; others are marked as beyond.
    """
    packed = np.empty(x.shape[::-1], dtype="<u2")
    for d, (low, high) in enumerate(ranges):
        place = np.rint((x[:, d] - low) / (high - low) * (LEVELS - 1))
        inside = (place >= 0) & (place < LEVELS)
        packed[d] = np.where(inside, place, LEVELS).astype("<u2")
    return base64.b64encode(packed.tobytes()).decode("ascii")
