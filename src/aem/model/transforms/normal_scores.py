"""Columns whose rows crowd, seen through a lens: a monotone map that spreads them.

Where a long tail makes a column wide, most of its rows may lie within a tenth of a deviation; to a
mixture or a network all of them are one spike. A lens maps values to about the normal scores of their
ranks, smoothly through some quantiles and straight beyond the outermost. What a model says of such
scores is a statement about the values: densities change by the slope of the lens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri

Array = NDArray[np.float64]

CROWDED = 8.0  # deviations over what the quartiles would have them be
NORMAL_QUARTILES = 1.349  # deviations between them
QUANTILES = 64
OUTERMOST = (8, 16, 32, 64, 128)  # rows beyond further quantiles at both ends
FEWEST = 16  # quantiles that differ: below, the column is all but discrete
HALVINGS = 60
FLATTEST = 1e-6  # of the mean slope


@dataclass(frozen=True)
class Lens:
    """The map of one column: through these points, both rising."""

    column: str
    values: tuple[float, ...]
    scores: tuple[float, ...]

    @classmethod
    def of(cls, column: str, x: Array) -> "Lens | None":
        """The lens of some rows of a column; none where too few values differ."""
        middle = (np.arange(QUANTILES) + 0.5) / QUANTILES
        outer = np.array([k / len(x) for k in OUTERMOST if k / len(x) < middle[0]])
        level = np.concatenate((outer, middle, 1 - outer[::-1]))
        values = np.quantile(x, level)
        apart = np.diff(values, prepend=-np.inf) > 1e-9 * x.std()
        if apart.sum() < FEWEST:
            return None
        return cls(column, tuple(values[apart].tolist()), tuple(ndtri(level[apart]).tolist()))

    def __call__(self, x: Array) -> Array:
        """Scores of values."""
        inside: Array = self._curve(x.clip(*self._ends))
        return inside + self._beyond(x, self.values) * self._outer_slopes(x, self.values)

    def log_slope(self, x: Array) -> Array:
        """The logarithm of the slope at values: what it adds to a log density of their scores."""
        curve: Array = self._curve(x.clip(*self._ends), 1)
        outside = self._beyond(x, self.values) != 0
        slope = np.where(outside, self._outer_slopes(x, self.values), curve)
        mean = (self.scores[-1] - self.scores[0]) / (self.values[-1] - self.values[0])
        log_slope: Array = np.log(np.maximum(slope, FLATTEST * mean))
        return log_slope

    def inverse(self, y: Array) -> Array:
        """Values of scores."""
        place = np.searchsorted(self.scores, y).clip(1, len(self.scores) - 1)
        low, high = (np.array(self.values)[place - i] for i in (1, 0))
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            above = self._curve(middle) < y
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        beyond = self._beyond(y, self.scores) / self._outer_slopes(y, self.scores)
        value: Array = 0.5 * (low + high) + beyond
        return value

    @property
    def _ends(self) -> tuple[float, float]:
        return self.values[0], self.values[-1]

    @cached_property
    def _curve(self) -> Any:
        return PchipInterpolator(self.values, self.scores)

    @staticmethod
    def _beyond(x: Array, points: Sequence[float]) -> Array:
        """How far outside the outermost points."""
        beyond: Array = x - x.clip(points[0], points[-1])
        return beyond

    def _outer_slopes(self, x: Array, points: Sequence[float]) -> Array:
        """Of the straight ends: as between the two outermost points."""
        first, last = (
            (self.scores[i + 1] - self.scores[i]) / (self.values[i + 1] - self.values[i])
            for i in (0, len(self.values) - 2)
        )
        return np.where(x < points[0], first, last)


def crowding(z: Array) -> Array:
    """Of columns: how much nearer together the middle half of the rows is than in a normal one."""
    low, high = np.quantile(z, (0.25, 0.75), axis=0)
    times: Array = NORMAL_QUARTILES * z.std(0) / np.maximum(high - low, 1e-9 * z.std(0))
    return times


def lenses_for(x: Array, columns: Sequence[str], without: Sequence[str]) -> tuple[Lens, ...]:
    """A lens for every crowded column, except some."""
    found = (
        Lens.of(name, x[:, d])
        for d, (name, times) in enumerate(zip(columns, crowding(x), strict=True))
        if times > CROWDED and name not in without
    )
    return tuple(lens for lens in found if lens is not None)


def lenses_from(entries: Sequence[Mapping[str, Any]]) -> tuple[Lens, ...]:
    """Lenses as a file holds them."""
    return tuple(Lens(e["column"], tuple(e["values"]), tuple(e["scores"])) for e in entries)


def through(lenses: Sequence[Lens], columns: Sequence[str], x: Array) -> Array:
    """Rows with the columns that have a lens seen through it."""
    seen = x.copy()
    for lens in lenses:
        d = columns.index(lens.column)
        seen[..., d] = lens(x[..., d])
    return seen


def log_slopes(lenses: Sequence[Lens], columns: Sequence[str], x: Array) -> Array:
    """What the lenses add to each row's log density."""
    total = np.zeros(x.shape[:-1])
    for lens in lenses:
        total += lens.log_slope(x[..., columns.index(lens.column)])
    return total
