"""The paper's tasks in the plane, each with its exact density.

The exact density is what makes these tasks worth having: a model is judged by its distance from
the truth, not only by its rank among other models.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx

Samples: TypeAlias = npt.NDArray[np.float32]
Floats: TypeAlias = npt.NDArray[np.float64]
Window: TypeAlias = tuple[tuple[float, float], tuple[float, float]]

_ROWS_AT_ONCE: Final = 2**18  # bounds the memory of log_prob, whatever the number of rows
_FAR: Final = 1e150  # its square is still a float; beyond it a log density is −inf


class PlaneTask(ABC):
    """A distribution in the plane with a sampler and an exact density."""

    name: str
    bounds: Window
    """The x range and the y range of a window that holds practically all of the mass."""

    def sample(self, n: int, seed: int) -> Samples:
        """Draw rows of two numbers; the same seed gives the same rows.

        Parameters
        ----------
        n
            how many rows.
        seed
            seed of the draws.
        """
        return self._draw(n, np.random.default_rng(seed))

    def log_prob(self, x: npt.ArrayLike) -> Floats:
        """Return the exact log density of rows: −inf off the support, NaN for NaN.

        Parameters
        ----------
        x
            rows of two numbers.
        """
        rows = np.asarray(x, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != 2:
            raise ValueError(f"log_prob wants rows of two numbers, not an array of {rows.shape}")
        log_density = np.where(np.isnan(rows).any(axis=1), np.nan, -np.inf)
        near = np.flatnonzero((np.abs(rows) < _FAR).all(axis=1))
        for start in range(0, len(near), _ROWS_AT_ONCE):
            chunk = near[start : start + _ROWS_AT_ONCE]
            log_density[chunk] = self._log_density(rows[chunk])
        return log_density

    @abstractmethod
    def entropy(self) -> float:
        """Return the differential entropy in nats: minus the best mean log density there is."""

    @abstractmethod
    def _draw(self, n: int, rng: np.random.Generator) -> Samples: ...

    @abstractmethod
    def _log_density(self, rows: Floats) -> Floats: ...


class Spirals(PlaneTask):
    """Two interleaved spiral arms of two and a half turns, thickened by a box and by noise.

    A point is ±(curve(m) + corner) + noise, where m has density 2m/M² on [0, M], `corner` is
    uniform on the square [0, BOX]² and `noise` is Gaussian. Given m and the sign, the density is a
    product of two box-convolved Gaussians; only the integral over m needs a quadrature.
    """

    name = "spirals"
    bounds = ((-4.3, 4.3), (-4.3, 4.3))

    _SCALE: Final = 0.7
    _ANGLE: Final = np.deg2rad(900.0)  # M
    _BOX: Final = _SCALE / 2 / 3
    _NOISE: Final = 0.09

    # The integrand is a bump about as wide as the noise. Equal steps of (1 + m)² are nearly equal
    # steps along the arm, 29 long, and 24 Gauss nodes to a panel of one such unit leave an error of
    # 1e-9 in any log density above −50.
    _PANELS: Final = 30
    _NODES_PER_PANEL: Final = 24

    # Rows are handled by square cells of this side, each with the nodes that matter within it; a
    # crowded cell by blocks of this many rows, for arrays that fit the cache.
    _CELL: Final = 0.2
    _BLOCK: Final = 1024

    def __init__(self) -> None:
        edges = np.sqrt(np.linspace(1.0, (1.0 + self._ANGLE) ** 2, self._PANELS + 1)) - 1.0
        nodes, weights = np.polynomial.legendre.leggauss(self._NODES_PER_PANEL)
        half = np.diff(edges)[:, None] / 2
        m = (edges[:-1, None] + half + half * nodes).ravel()
        weight = (half * weights).ravel() * 2 * m / self._ANGLE**2
        centres = self._curve(m) + self._BOX / 2
        # Box and noise are symmetric about their centre, so the second arm is the first, negated.
        self._centres = np.concatenate([centres, -centres])
        self._log_weights = np.log(np.concatenate([weight, weight]) / 2)

    def entropy(self) -> float:
        """Return the entropy, by the trapezoidal rule on a grid that resolves the noise."""
        return self._entropy

    @cached_property
    def _entropy(self) -> float:
        side, step = np.linspace(-4.5, 4.5, 301, retstep=True)
        grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
        log_density = self.log_prob(grid)
        return -float(np.exp(log_density) @ log_density) * float(step) ** 2

    def _curve(self, m: Floats) -> Floats:
        return np.stack([-np.cos(m), np.sin(m)], axis=1) * (self._SCALE / 3 * m)[:, None]

    def _draw(self, n: int, rng: np.random.Generator) -> Samples:
        points = self._curve(np.sqrt(rng.random(n)) * self._ANGLE)
        points += self._BOX * rng.random((n, 2))
        points *= rng.choice([-1.0, 1.0], size=(n, 1))
        points += self._NOISE * rng.standard_normal((n, 2))
        return points.astype(np.float32)

    def _log_density(self, rows: Floats) -> Floats:
        log_density = np.empty(len(rows))
        cells = np.floor(rows / self._CELL)
        by_cell = np.lexsort(cells.T)
        cell_starts = np.flatnonzero(np.diff(cells[by_cell], axis=0).any(axis=1)) + 1
        block_starts = np.arange(self._BLOCK, len(rows), self._BLOCK)
        for members in np.split(by_cell, np.union1d(cell_starts, block_starts)):
            nodes = self._nodes_that_matter((cells[members[0]] + 0.5) * self._CELL)
            x, y = rows[members].T[:, :, None] - self._centres[nodes].T[:, None, :]
            terms = self._log_weights[nodes] + self._log_box(x) + self._log_box(y)
            log_density[members] = _log_sum_exp(terms)
        return log_density

    def _nodes_that_matter(self, cell_centre: Floats) -> npt.NDArray[np.intp]:
        """Return the nodes that are not, from all of the cell, six noises beyond the nearest."""
        distance = np.hypot(*(self._centres - cell_centre).T)
        slack = 2 * self._CELL / np.sqrt(2) + self._BOX / np.sqrt(2)
        return np.flatnonzero(distance <= distance.min() + slack + 6 * self._NOISE)

    def _log_box(self, offset: Floats) -> Floats:
        """Return the log density of box plus noise, exact however far out.

        It is log((erfc(near) − erfc(far)) / (2 BOX)), near and far being the distances to the two
        ends of the box in units of √2 noises. With exp(−near²) taken out, what is left under the
        log cannot underflow: erfcx(z) = exp(z²) erfc(z).
        """
        distance = np.abs(offset)
        near = (distance - self._BOX / 2) / (self._NOISE * np.sqrt(2))
        far = (distance + self._BOX / 2) / (self._NOISE * np.sqrt(2))
        far_to_near = np.exp(distance * (-self._BOX / self._NOISE**2))  # exp(near² − far²)
        scaled = erfcx(near) - far_to_near * erfcx(far)
        log_box: Floats = np.log(scaled / (2 * self._BOX)) - near**2
        return log_box


class Checkerboard(PlaneTask):
    """Uniform on the squares of an 8 × 8 board whose two corner numbers add up to an even one."""

    name = "checkerboard"
    bounds = ((-4.0, 4.0), (-4.0, 4.0))

    def entropy(self) -> float:
        """Return the log of the area of the support."""
        return float(np.log(32.0))

    def _draw(self, n: int, rng: np.random.Generator) -> Samples:
        # Uniform float32 numbers are multiples of 2⁻²⁴, so that every step below is exact: no row
        # is rounded across an edge, off the support. One number gives both square and place in it.
        across, up = 8 * rng.random(n, dtype=np.float32), 4 * rng.random(n, dtype=np.float32)
        skipped_squares = np.floor(up) + np.floor(across) % 2
        return np.stack([across - 4, up + (skipped_squares - 4)], axis=1)

    def _log_density(self, rows: Floats) -> Floats:
        on_board = ((rows >= -4) & (rows < 4)).all(axis=1)
        on_square = np.floor(rows).sum(axis=1) % 2 == 0
        return np.where(on_board & on_square, -np.log(32.0), -np.inf)


class Diamond(PlaneTask):
    """A square grid of 15 × 15 Gaussians, turned by 45° to stand on a corner.

    Before the turn the coordinates are independent, each a mixture of 15 Gaussians.
    """

    name = "diamond"
    bounds = ((-4.0, 4.0), (-4.0, 4.0))

    _MEANS: Final = np.linspace(-2.5, 2.5, 15)
    _STD: Final = 0.06
    _TURN: Final[Floats] = np.sqrt(0.5) * np.array([[1.0, -1.0], [1.0, 1.0]])

    def entropy(self) -> float:
        """Return twice the entropy of one coordinate, by the trapezoidal rule."""
        line, step = np.linspace(-3.5, 3.5, 2001, retstep=True)
        log_density = self._log_coordinate_density(line)
        return -2 * float(np.exp(log_density) @ log_density) * float(step)

    def _draw(self, n: int, rng: np.random.Generator) -> Samples:
        points = self._MEANS[rng.integers(len(self._MEANS), size=(n, 2))]
        points += self._STD * rng.standard_normal((n, 2))
        return (points @ self._TURN).astype(np.float32)

    def _log_density(self, rows: Floats) -> Floats:
        log_density: Floats = self._log_coordinate_density(rows @ self._TURN.T).sum(axis=1)
        return log_density

    def _log_coordinate_density(self, coordinate: Floats) -> Floats:
        normalised = (coordinate[..., None] - self._MEANS) / self._STD
        constant: float = np.log(len(self._MEANS) * self._STD * np.sqrt(2 * np.pi))
        return _log_sum_exp(-0.5 * normalised**2) - constant


def _log_sum_exp(terms: Floats) -> Floats:
    """Sum exp(terms) over the last axis and return the log (scipy's is slow for small arrays)."""
    largest = terms.max(axis=-1, keepdims=True)
    log_sum: Floats = largest[..., 0] + np.log(np.exp(terms - largest).sum(axis=-1))
    return log_sum
