"""Normal-scores transform for heavy-tailed columns.

A long tail makes the standard deviation of a column large. Most rows may then lie within a tenth of it,
and look like a single spike to mixtures and networks. The transform maps values approximately to the
normal scores of their ranks, by a monotone cubic interpolation of quantiles that is linear beyond the
outermost ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri
from torch import Tensor

from aem.errors import AemError
from aem.model.transforms.base import TableTransform, require_finite

Array = NDArray[np.float64]

# A column is transformed if its standard deviation exceeds the one suggested by its quartiles this
# many times.
HEAVY_TAILED = 8.0
NORMAL_QUARTILES = 1.349  # interquartile range of a normal distribution in standard deviations
QUANTILES = 64
OUTERMOST = (8, 16, 32, 64, 128)  # further quantiles at both ends, by the number of rows beyond
FEWEST = 16  # distinct quantiles; with fewer the column is almost discrete
HALVINGS = 60
FLATTEST = 1e-6  # smallest slope, as a fraction of the mean slope


@dataclass(frozen=True)
class NormalScores(TableTransform):
    """A monotone map of one column through given points; the other columns stay.

    Parameters
    ----------
    column
        number of the column among those that the transform reads.
    values
        quantiles of the column, rising.
    scores
        the normal scores of their levels, which the map sends them to, rising.
    """

    kind: ClassVar[str] = "normal_scores"

    column: int
    values: tuple[float, ...]
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        for points in (self.values, self.scores):
            require_finite("a normal-scores transform", points)
        rising = all((np.diff(points) > 0).all() for points in (self.values, self.scores))
        if len(self.values) != len(self.scores) or len(self.values) < 2 or not rising:
            raise AemError(f"the normal-scores transform of column {self.column + 1} is damaged")

    @classmethod
    def of(cls, column: int, x: Array) -> "NormalScores | None":
        """Fit the transform to the values of a column; None where too few of them differ.

        Parameters
        ----------
        column
            number of the column in its table.
        x
            the values of the column in the training rows [B].
        """
        middle = (np.arange(QUANTILES) + 0.5) / QUANTILES
        outer = np.array([k / len(x) for k in OUTERMOST if k / len(x) < middle[0]])
        level = np.concatenate((outer, middle, 1 - outer[::-1]))
        values = np.quantile(x, level)
        apart = np.diff(values, prepend=-np.inf) > 1e-9 * x.std()
        if apart.sum() < FEWEST:
            return None
        return cls(column, tuple(values[apart].tolist()), tuple(ndtri(level[apart]).tolist()))

    def check(self, features: int) -> None:
        """Refuse a table without the column."""
        if not 0 <= self.column < features:
            raise AemError(
                f"the normal-scores transform of column {self.column + 1} does not belong to a "
                f"table of {features} columns"
            )

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map values of the column to scores; the other columns stay."""
        own = x[..., self.column]
        inside = self._polynomial(own)
        return self._with(
            x, inside + _beyond(own, self.values) * self._outer_slopes(own, self.values)
        )

    def log_slopes(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return the logarithm of the slope in the column, zero in the others."""
        own = x[..., self.column]
        outside = _beyond(own, self.values) != 0
        slope = torch.where(
            outside, self._outer_slopes(own, self.values), self._polynomial(own, slope=True)
        )
        mean = (self.scores[-1] - self.scores[0]) / (self.values[-1] - self.values[0])
        return self._with(torch.zeros_like(x), slope.clamp_min(FLATTEST * mean).log())

    def inverse(self, y: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map scores of the column to values, by bisection."""
        own = y[..., self.column].contiguous()
        values, scores = _points(self.values, own), _points(self.scores, own)
        place = torch.searchsorted(scores, own).clamp(1, len(self.scores) - 1)
        low, high = values[place - 1], values[place]
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            above = self._polynomial(middle) < own
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        beyond = _beyond(own, self.scores) / self._outer_slopes(own, self.scores)
        return self._with(y, 0.5 * (low + high) + beyond)

    def _with(self, rows: Tensor, column: Tensor) -> Tensor:
        """Return rows with new values in the column."""
        columns = list(rows.unbind(-1))
        columns[self.column] = column
        return torch.stack(columns, -1)

    @cached_property
    def _coefficients(self) -> Array:
        """Coefficients [4, P − 1] of the cubics between neighbouring points, highest power first."""
        coefficients: Array = PchipInterpolator(self.values, self.scores).c
        return coefficients

    def _polynomial(self, x: Tensor, *, slope: bool = False) -> Tensor:
        """Evaluate the cubics or their derivatives at values, clamped to the outermost points."""
        points = _points(self.values, x)
        x = x.clamp(self.values[0], self.values[-1]).contiguous()
        piece = (torch.searchsorted(points, x, right=True) - 1).clamp(0, len(self.values) - 2)
        cubic, square, linear, constant = (
            torch.from_numpy(c).to(x)[piece] for c in self._coefficients
        )
        s = x - points[piece]
        if slope:
            return linear + square * s * 2 + cubic * (s * s) * 3
        return constant + linear * s + square * (s * s) + cubic * (s * s * s)

    def _outer_slopes(self, x: Tensor, points: Sequence[float]) -> Tensor:
        """Return the slopes of the straight ends: as between the two outermost points."""
        first, last = (
            (self.scores[i + 1] - self.scores[i]) / (self.values[i + 1] - self.values[i])
            for i in (0, len(self.values) - 2)
        )
        return torch.where(x < points[0], x.new_tensor(first), x.new_tensor(last))


def _points(points: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(points, dtype=like.dtype, device=like.device)


def _beyond(x: Tensor, points: Sequence[float]) -> Tensor:
    """Return how far values lie outside the outermost points."""
    return x - x.clamp(points[0], points[-1])


def crowding(z: Array) -> Array:
    """Return how much narrower the middle half of each column is than in a normal distribution.

    The number is the ratio of a column's standard deviation to the one that its quartiles suggest:
    one for a normal column, many for a heavy-tailed one.

    Parameters
    ----------
    z
        rows [B, D], in any units.
    """
    low, high = np.quantile(z, (0.25, 0.75), axis=0)
    times: Array = NORMAL_QUARTILES * z.std(0) / np.maximum(high - low, 1e-9 * z.std(0))
    return times


def heavy_tailed(x: Array, without: Sequence[int] = ()) -> tuple[NormalScores, ...]:
    """Return the transforms of all heavy-tailed columns of rows.

    Parameters
    ----------
    x
        training rows [B, D].
    without
        numbers of columns to leave as they are, such as discrete ones.
    """
    found = (
        NormalScores.of(d, x[:, d])
        for d, times in enumerate(crowding(x))
        if times > HEAVY_TAILED and d not in without
    )
    return tuple(transform for transform in found if transform is not None)
