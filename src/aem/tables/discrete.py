"""Discrete columns: how they are recognised, dequantised, integrated and rounded back.

A density has no meaning at values that repeat, because it could grow without bound there. Such a
column is dequantised: each value v stands for the cell of one step around it, [v − step/2,
v + step/2), the model is fitted to values drawn uniformly from the cells, and the score of v is the
probability of its cell divided by the step. This is a log density in the units of the data, as for
any other column; add log(step) for the log probability of the value. For whole numbers the step is
usually one, and the two are equal.

A smooth density extends beyond the range of a column with few values. The probability is then
corrected: 1 − ε is distributed over the values from the lowest to the highest observed, and ε, the
probability that a new row has an unseen value, over those beyond.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.base.threads import spread
from aem.conditionals.batch import Conditionals
from aem.conditionals.quadrature import KRONROD, NODES
from aem.errors import AemError
from aem.model.aem import AEM
from aem.nn.features import HIGHEST_FREQUENCY

Array = NDArray[np.float64]

REPEATED = 20  # rows per distinct value from which a column of any numbers counts as discrete
ROUNDED = 2  # the same for a column whose values are multiples of a step, as rounded ones are
SAME = 1e-9  # fraction of the central range below which values differ by rounding only
MOST = (0.05, 0.95)  # quantiles of the central range, which outliers do not affect
ON_GRID = 1e-3  # largest deviation from a multiple of the step, as a fraction of the step
# Smallest step in standard deviations; the networks cannot resolve a finer grid.
FINEST = 2 * math.pi / HIGHEST_FREQUENCY
# Radians of the highest frequency per panel of 15 nodes, where a cell is integrated.
PHASE = 6.0
FEWEST_PANELS, MOST_PANELS = 4, 64
NODES_AT_A_TIME = {"cpu": 2**14, "cuda": 2**18}
MOST_BOUNDED_CELLS = 32
DIGITS = 13  # significant digits of a value that arithmetic preserves


@dataclass(frozen=True)
class Discrete:
    """One discrete column: its values are origin + step · k, of which k = 0 … cells − 1 have been seen.

    Parameters
    ----------
    column
        name of the column.
    origin
        the lowest value seen.
    step
        distance of neighbouring values, and width of the cell around each.
    cells
        how many steps the values seen span, both ends included.
    beyond
        ε, the chance of a value below the lowest or above the highest seen.
    why
        what the column was recognised by, in words.
    values
        all values, of a column that has no common step; empty otherwise.
    """

    column: str
    origin: float
    step: float
    cells: int
    beyond: float
    why: str
    values: tuple[float, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether it has so few values that the probability beyond their range is corrected."""
        return self.cells <= MOST_BOUNDED_CELLS

    def within(self, x: Array) -> NDArray[np.bool_]:
        """Return which values lie in a cell of the range seen.

        Parameters
        ----------
        x
            values in the units of the column [B].
        """
        place = np.floor((x - self.origin) / self.step + 0.5)
        return (place >= 0) & (place < self.cells)

    def as_record(self) -> dict[str, Any]:
        """Return the column as JSON holds it."""
        return {k: v for k, v in asdict(self).items() if k != "values" or v}

    @classmethod
    def from_record(cls, entry: Mapping[str, Any]) -> "Discrete":
        """Read what JSON holds, or say that it is damaged.

        Parameters
        ----------
        entry
            what `as_record` gave.
        """
        column = cls(**{**entry, "values": tuple(entry.get("values", ()))})
        numbers = (column.origin, column.step, column.beyond, *column.values)
        possible = column.step > 0 and column.cells >= 1 and 0 < column.beyond < 1
        if not possible or not all(map(math.isfinite, numbers)):
            raise AemError(f"the discrete column '{column.column}' is damaged")
        return column

    def centre(self, x: Array) -> Array:
        """Return the middle of the cell of each value, without rounding noise.

        Parameters
        ----------
        x
            values in the units of the column [B].
        """
        middle = self.origin + self.step * np.floor((x - self.origin) / self.step + 0.5)
        largest = max(abs(self.origin), abs(self.origin + self.step * self.cells))
        rounded: Array = np.round(middle, DIGITS - math.ceil(math.log10(largest or 1.0)))
        return rounded

    def moved(self, by: float) -> "Discrete":
        """Return the same column with a number added to its values.

        Parameters
        ----------
        by
            what is added to origin and values.
        """
        values = tuple(value + by for value in self.values)
        return replace(self, origin=self.origin + by, values=values)

    def restore(self, x: Array) -> Array:
        """Round draws to values of the column.

        Parameters
        ----------
        x
            drawn values [B].
        """
        if not self.values:
            return self.centre(x)
        known = np.array(self.values)
        nearest: Array = known[np.abs(x[:, None] - known).argmin(1)]
        return nearest


def recognise(x: Array, columns: Sequence[str]) -> list[Discrete]:
    """Recognise the discrete columns of a table.

    A column is discrete if its values are whole numbers not too fine for its spread, multiples of
    another step, or so few that they repeat.

    Parameters
    ----------
    x
        training rows [B, D].
    columns
        names of the columns.
    """
    found = (_look_at(x[:, d], name) for d, name in enumerate(columns))
    return [column for column in found if column is not None]


def _look_at(x: Array, name: str) -> Discrete | None:
    values = np.unique(x)
    low, spread = float(values[0]), float(values[-1]) - float(values[0])
    if not np.isfinite(spread):
        return None
    beyond = 1 / (len(x) + 1)
    whole = bool((values == np.round(values)).all()) and float(np.abs(values).max()) < 2**53
    if len(values) == 1:
        step = 1.0 if whole else _decimal_step(low)
        return Discrete(name, low, step, 1, beyond, "a single value")
    gaps = np.diff(values)
    if whole:
        step = float(math.gcd(*(int(gap) for gap in gaps)))
        if step < FINEST * x.std():
            return None
        return Discrete(name, low, step, round(spread / step) + 1, beyond, "whole numbers")
    gaps = gaps[gaps > _rounding(x, values)]
    distinct = len(gaps) + 1
    if distinct > max(2, len(x) / ROUNDED):
        return None
    step, regular = _common_step(gaps)
    if step < FINEST * x.std() or not (regular or distinct <= max(2, len(x) / REPEATED)):
        return None
    why = f"{distinct} distinct values in {len(x):,} rows"
    cells = math.floor(spread / step + 0.5) + 1
    if regular:
        step = spread / (cells - 1)  # the whole range determines it to more digits than a gap
    return Discrete(
        name, low, step, cells, beyond, why, () if regular else tuple(map(float, values))
    )


def _rounding(x: Array, values: Array) -> Array:
    """Return distances [V − 1] below which neighbours among sorted values [V] count as equal."""
    low, high = np.quantile(x, MOST)
    digits = 8 * np.finfo(np.float64).eps * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    same: Array = np.maximum(SAME * (high - low), digits)
    return same


def _decimal_step(value: float) -> float:
    """Return the last decimal place of a number."""
    for places in range(1, 12):
        if round(value, places) == value:
            return 10.0**-places
    return abs(value) * 1e-6


def _common_step(gaps: Array) -> tuple[float, bool]:
    """Return the largest step of which all gaps are multiples, or else the smallest gap."""
    smallest = float(gaps.min())

    def divisor(a: float, b: float) -> float:
        while b > ON_GRID * smallest:
            a, b = b, a % b
            if a - b < ON_GRID * smallest:  # a remainder just below the divisor is rounding too
                b = 0.0
        return a

    step = reduce(divisor, sorted(map(float, gaps)))
    # The smallest gap measures its multiple of the step best.
    step = smallest / max(round(smallest / step), 1)
    multiples = gaps / step
    regular = step > 0.01 * smallest and bool(
        (np.abs(multiples - np.round(multiples)) < 20 * ON_GRID).all()
    )
    return (step, True) if regular else (smallest, False)


def lattice(
    columns: Sequence[str], discrete: Sequence[Discrete], offsets: Array
) -> tuple[tuple[float, float], ...]:
    """Return (origin, step) of every column for `ModelConfig.lattice`; empty if none is discrete.

    Parameters
    ----------
    columns
        names of all columns.
    discrete
        the discrete ones among them.
    offsets
        what is subtracted from each column before the model sees it [D].
    """
    if not discrete:
        return ()
    found = {column.column: (column.origin, column.step) for column in discrete}
    places = (found.get(name, (float(o), 0.0)) for name, o in zip(columns, offsets, strict=True))
    return tuple(
        (origin - float(o), step) for (origin, step), o in zip(places, offsets, strict=True)
    )


def dequantise(
    x: Array, columns: Sequence[str], discrete: Sequence[Discrete], rng: np.random.Generator
) -> Array:
    """Dequantise rows: draw discrete values uniformly from their cells, to fit a density.

    Parameters
    ----------
    x
        training rows [B, D].
    columns
        names of all columns.
    discrete
        the discrete ones among them.
    rng
        generator of the draws.
    """
    x = x.copy()
    for column in discrete:
        d = columns.index(column.column)
        x[:, d] = column.centre(x[:, d]) + column.step * (rng.random(len(x)) - 0.5)
    return x


@torch.no_grad()
def log_cell_density(
    model: AEM,
    flat: Conditionals,
    discrete: Sequence[Discrete],
    rows: Float[Tensor, "B D"],
    log_z: Float[Tensor, "B D"],
    *,
    proposal_alone: bool = False,
) -> dict[int, Float[Tensor, " B"]]:
    """Return for each discrete column log(P(cell) / step) of rows, by number of the column.

    The density is integrated over the cell itself: a difference of two values of the CDF would lose
    every digit in the tails. A proposal alone knows its mass in closed form.

    Parameters
    ----------
    model
        the model, in float64.
    flat
        the rows' conditionals, with one batch axis.
    discrete
        the discrete columns, in the units that the model reads.
    rows
        rows in the units that the model reads.
    log_z
        log normalisers of the rows' conditionals.
    proposal_alone
        whether the density meant is the proposal's.
    """
    shift, scales = model.standardisation.shift, model.standardisation.scale
    index = torch.arange(len(rows), device=rows.device) * rows.shape[1]
    result = {}
    for column in discrete:
        d = model.columns.index(column.column)
        own, scale = flat.select(index + d), float(scales[d])
        log_mass = own.proposal.log_mass if proposal_alone else partial(_log_mass, own)
        place = torch.floor((rows[:, d] - column.origin) / column.step + 0.5)

        def start(k: Tensor, column: Discrete = column, d: int = d) -> Tensor:
            """Where the k-th cell begins, standardised."""
            return (column.origin + column.step * (k - 0.5) - shift[d]) / scales[d]

        mass = log_mass(start(place), column.step / scale) - log_z[:, d]
        if column.bounded:
            width = column.cells * column.step / scale
            inside = log_mass(start(torch.zeros_like(place)), width) - log_z[:, d]
            seen = (place >= 0) & (place < column.cells)
            outside = torch.log1p(-inside.exp().clamp(max=1 - 1e-9))
            mass = torch.where(
                seen,
                mass - inside + math.log1p(-column.beyond),
                mass - outside + math.log(column.beyond),
            )
        result[d] = mass - math.log(column.step)
    return result


def _log_mass(
    conditionals: Conditionals, low: Float[Tensor, " B"], width: float
) -> Float[Tensor, " B"]:
    """Return log of the integral of p̃ over [low, low + width), by as many nodes as it needs."""
    highest = float(conditionals.highest_frequency.max()) if len(low) else 0.0
    panels = min(max(math.ceil(width * highest / PHASE), FEWEST_PANELS), MOST_PANELS)
    start = torch.arange(panels, dtype=low.dtype, device=low.device)[:, None]
    share = ((start + 0.5 + 0.5 * NODES.to(low)) / panels).reshape(-1)
    log_weight = (KRONROD.to(low) * 0.5 / panels).log().repeat(panels)
    chunk = max(NODES_AT_A_TIME[low.device.type] // len(share), 1)

    def some(which: Tensor) -> Tensor:
        x = low[which, None] + width * share
        level = conditionals.select(which).log_unnormalized(x)
        return (level + log_weight).logsumexp(-1)

    chunks = torch.arange(len(low), device=low.device).split(chunk) if len(low) else ()
    parts = list(spread(some, chunks, device=low.device.type))
    return (torch.cat(parts) if parts else low) + math.log(width)
