"""Medians, modes and regions of many conditionals at once, from a table of each at some points.

`aem.conditionals.conditional` computes them to the quadrature's tolerance, one conditional after the
other. Explanations need them for every column of every row, and only to the width of a line in a plot.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aem.conditionals.batch import Conditionals

Array = NDArray[np.float64]
Interval = tuple[float, float]

LEVELS = 256  # quantiles of the proposal at which a conditional is tabulated
OUTERMOST = 1e-5  # the lowest of them
GAP = 0.005  # intervals of a region are joined if the probability between them is less


@dataclass(frozen=True)
class TabulatedConditionals:
    """Conditionals of a batch `*B`, each with a constant density between neighbouring points.

    Parameters
    ----------
    grid
        L points of each conditional, in rising order [*B, L].
    mass
        the probability between neighbours [*B, L − 1].
    """

    grid: Array
    mass: Array

    @cached_property
    def density(self) -> Array:
        """The density between neighbouring points."""
        found: Array = self.mass / np.diff(self.grid, axis=-1).clip(min=1e-300)
        return found

    def mean_log_density(self) -> Array:
        """Return the expectation of the log density of each conditional."""
        found: Array = (self.mass * np.log(self.density.clip(min=1e-300))).sum(-1)
        return found

    def modes(self) -> Array:
        """Return the middle of the piece with the highest density of each conditional."""
        place = self.density.argmax(-1)[..., None]
        low, high = (np.take_along_axis(self.grid, place + i, -1)[..., 0] for i in (0, 1))
        middle: Array = 0.5 * (low + high)
        return middle

    def medians(self) -> Array:
        """Return the median of each conditional."""
        below = np.cumsum(self.mass, axis=-1)
        piece = (below < 0.5).sum(-1, keepdims=True).clip(max=self.mass.shape[-1] - 1)

        def at(values: Array, where: NDArray[np.int64]) -> Array:
            taken: Array = np.take_along_axis(values, where, -1)[..., 0]
            return taken

        share = (0.5 - at(below, piece)) / at(self.mass, piece).clip(min=1e-300) + 1
        low, high = at(self.grid, piece), at(self.grid, piece + 1)
        middle: Array = low + share.clip(0, 1) * (high - low)
        return middle

    def highest_density_region(self, *index: int, mass: float) -> list[Interval]:
        """Return the smallest set of one conditional that has a probability, as intervals.

        Parameters
        ----------
        index
            which of the batch.
        mass
            the probability, between 0 and 1.
        """
        grid, own = self.grid[index], self.mass[index]
        order = np.argsort(-self.density[index], kind="stable")
        needed = int(np.searchsorted(np.cumsum(own[order]), mass)) + 1
        inside = np.zeros(len(own) + 2)
        inside[1 + order[:needed]] = 1
        change = np.diff(inside)
        starts, ends = np.flatnonzero(change > 0), np.flatnonzero(change < 0)
        below = np.concatenate(([0.0], np.cumsum(own)))
        intervals: list[Interval] = []
        last = -1
        for start, end in zip(starts, ends, strict=True):
            low, high = float(grid[start]), float(grid[end])
            if intervals and below[start] - below[last] < GAP:
                low = intervals.pop()[0]
            intervals.append((low, high))
            last = int(end)
        return intervals


@torch.no_grad()
def tabulate(conditionals: Conditionals) -> tuple[Tensor, Tensor]:
    """Tabulate conditionals at quantiles of their proposals.

    Parameters
    ----------
    conditionals
        N conditionals with one batch axis.

    Returns
    -------
    points : tensor [N, L]
        standardised points in rising order.
    mass : tensor [N, L − 1]
        the probability between neighbours, by the trapezoidal rule.
    """
    # Evenly spaced levels, and closer and closer ones towards the ends.
    even = torch.linspace(0, 1, LEVELS - 18, dtype=torch.float64)[1:-1]
    tail = torch.logspace(np.log10(OUTERMOST), np.log10(float(even[0]) / 2), 10).double()
    level = torch.cat((tail, even, 1 - tail.flip(0))).to(conditionals.projected.device)
    z = conditionals.proposal.icdf(level.expand(len(conditionals.projected), -1).contiguous())
    if conditionals.form == "relative":
        # Against the proposal only the weight has to be smooth.
        weight = conditionals.log_weight(z).exp()
        mass = level.diff() * 0.5 * (weight[:, 1:] + weight[:, :-1])
    else:
        height = conditionals.log_unnormalized(z)
        height = (height - height.amax(-1, keepdim=True)).exp()
        mass = z.diff(dim=-1) * 0.5 * (height[:, 1:] + height[:, :-1])
    return z, mass / mass.sum(-1, keepdim=True)
