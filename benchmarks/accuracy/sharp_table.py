"""A table of three columns with sharp edges and separate parts, whose density is known exactly.

The first column lies in three separate intervals. The second has two parts whose edges move with the
first. The third is uniform on some cells of a board that moves with the other two, or decays behind a
sharp edge. Columns are stretched and shifted, as the units of real tables are.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

INTERVALS = ((0.0, 1.0, 0.40), (1.6, 2.0, 0.35), (3.0, 4.5, 0.25))  # from, to, probability
SCALE, SHIFT = np.array([1.0, 30.0, 0.02]), np.array([5.0, -100.0, 1.0])


@dataclass(frozen=True)
class Pieces:
    """The two uniform pieces of the second column, given the first."""

    low: Array
    width: Array
    probability: Array


def _second(first: Array) -> Pieces:
    """Return the pieces [B, 2] of the second column."""
    low = np.stack((np.sin(2.0 * first), 1.5 + 0.5 * first), -1)
    width = np.stack((0.3 + 0.2 * first, np.full_like(first, 0.25)), -1)
    share = 0.3 + 0.1 * first
    return Pieces(low, width, np.stack((share, 1.0 - share), -1))


def _edge(first: Array, second: Array) -> Array:
    """Return where the third column begins."""
    return np.asarray(np.abs(second) - 0.5 * first)


def _decays(first: Array) -> NDArray[np.bool_]:
    """Say which rows have a third column that decays; the others have one of four stripes."""
    return np.asarray(first > 1.5)


STRIPES = 4  # of width 0.25, every second one of the eight from the edge


def sample(rows: int, seed: int) -> Array:
    """Draw rows [B, 3].

    Parameters
    ----------
    rows
        B.
    seed
        of the draws.
    """
    rng = np.random.default_rng(seed)
    low, high, probability = np.array(INTERVALS).T
    part = rng.choice(len(low), size=rows, p=probability)
    first = rng.uniform(low[part], high[part])
    pieces = _second(first)
    which = (rng.uniform(size=rows) > pieces.probability[:, 0]).astype(int)
    row = np.arange(rows)
    second = pieces.low[row, which] + pieces.width[row, which] * rng.uniform(size=rows)
    striped = (2 * rng.integers(STRIPES, size=rows) + rng.uniform(size=rows)) / STRIPES
    behind = np.where(_decays(first), rng.exponential(0.4, size=rows), striped)
    third = _edge(first, second) + behind
    drawn: Array = SHIFT + SCALE * np.stack((first, second, third), -1)
    return drawn


def log_density(x: Array) -> Array:
    """Return the log density of rows [B, 3], minus infinity where there are none.

    Parameters
    ----------
    x
        the rows.
    """
    first, second, third = ((x - SHIFT) / SCALE).T
    low, high, probability = np.array(INTERVALS).T
    inside = (first[:, None] >= low) & (first[:, None] <= high)
    p_first = (inside * probability / (high - low)).sum(-1)
    pieces = _second(first)
    inside = (second[:, None] >= pieces.low) & (second[:, None] <= pieces.low + pieces.width)
    p_second = (inside * pieces.probability / pieces.width).sum(-1)
    behind = third - _edge(first, second)
    stripe = np.floor(behind * STRIPES)
    on_stripe = (behind >= 0) & (stripe < 2 * STRIPES) & (stripe % 2 == 0)
    decaying = np.where(behind >= 0, np.exp(-np.abs(behind) / 0.4) / 0.4, 0.0)
    p_third = np.where(_decays(first), decaying, on_stripe * 1.0)
    with np.errstate(divide="ignore"):
        total = np.log(p_first) + np.log(p_second) + np.log(p_third)
    return np.asarray(total - np.log(SCALE).sum())
