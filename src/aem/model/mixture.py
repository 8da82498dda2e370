"""Gaussian mixtures of all columns, fitted by expectation maximisation.

The proposals of an automatic fit start from such a mixture (`aem.conditionals.proposals.anchored`). On
a small table it is hard to improve, and held-out rows show whether a network improves it.

Covariances are shrunk towards the average covariance of the components: with few rows a component has
this shape, with many rows its own. A last, wide component has a small fixed weight, so that no row has
a density of zero.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from aem.base.randomness import some_rows
from aem.base.threads import spread
from aem.nn.rowwise import MANY, linear

Array = NDArray[np.float64]

Moments = tuple[Array, Array, Array]  # counts, sums and sums of products
LogDensities = Callable[[slice], Array]

BLOCK = 2048  # rows per task of a thread
WIDE_SHARE = 1e-4
WIDE_SCALE = 10.0  # in standard deviations of the table
SMALLEST_VARIANCE = 1e-6  # in units of standardised columns
MOST_ROWS = 30_000  # used for fitting; more rows hardly change a mixture
MOST_PRODUCTS = 3e7  # numbers kept in memory: 240 MB
ITERATIONS = 80
CONCENTRATIONS = 3
SETTLED = 1e-4  # smallest gain of an iteration, in nats per row, before EM stops


@dataclass(frozen=True)
class JointMixture:
    """A mixture of K Gaussians over D standardised columns.

    Parameters
    ----------
    log_weights
        log weights [K].
    means
        means [K, D].
    factors
        lower Cholesky factors [K, D, D] of the covariances.
    """

    log_weights: Array
    means: Array
    factors: Array

    def log_prob(self, z: Array) -> Array:
        """Return the log density of each row.

        Parameters
        ----------
        z
            standardised rows [B, D].
        """
        density: Array = logsumexp(self.by_component(z), axis=1)
        return density

    def by_component(self, z: Array) -> Array:
        """Return log densities [B, K] of each row and component, each with the component's weight.

        Parameters
        ----------
        z
            standardised rows [B, D].
        """
        terms = np.empty((len(z), len(self.log_weights)))
        constant = 0.5 * z.shape[1] * math.log(2 * math.pi)
        identity = np.eye(z.shape[1])
        for k, factor in enumerate(self.factors):
            white = solve_triangular(factor, identity, lower=True)
            u = _products(z - self.means[k], white)
            terms[:, k] = -0.5 * np.square(u).sum(1) - np.log(np.diag(factor)).sum() - constant
        return terms + self.log_weights

    def by_column(self, z: Array) -> Array:
        """Return log densities [B, D] of each column by itself, without the others.

        Parameters
        ----------
        z
            standardised rows [B, D].
        """
        scales = np.sqrt(np.square(self.factors).sum(-1))
        density = np.empty(z.shape)
        for d in range(z.shape[1]):
            u = (z[:, d, None] - self.means[:, d]) / scales[:, d]
            density[:, d] = logsumexp(self.log_weights - np.log(scales[:, d]) - 0.5 * u * u, axis=1)
        return density - 0.5 * math.log(2 * math.pi)

    def blurred(self, deviation: float) -> "JointMixture":
        """Return the distribution of rows with normal noise added to every column.

        Parameters
        ----------
        deviation
            standard deviation of the noise, in standardised units.
        """
        covariances = self.factors @ self.factors.transpose(0, 2, 1)
        covariances += deviation**2 * np.eye(self.means.shape[1])
        factors: Array = np.linalg.cholesky(covariances).astype(np.float64)
        return JointMixture(self.log_weights, self.means, factors)

    @staticmethod
    def pooled(mixtures: Sequence["JointMixture"]) -> "JointMixture":
        """Return the mixture of several mixtures in equal parts.

        Parameters
        ----------
        mixtures
            mixtures of the same columns.
        """
        return JointMixture(
            np.concatenate([m.log_weights for m in mixtures]) - math.log(len(mixtures)),
            np.concatenate([m.means for m in mixtures]),
            np.concatenate([m.factors for m in mixtures]),
        )

    def repeated(self, copies: int) -> "JointMixture":
        """Return the same density with each component, except the wide one, replaced by equal copies.

        Parameters
        ----------
        copies
            how many equal components stand for each.
        """
        weights = np.append(
            np.repeat(self.log_weights[:-1] - math.log(copies), copies), self.log_weights[-1]
        )
        means = np.vstack((np.repeat(self.means[:-1], copies, axis=0), self.means[-1:]))
        factors = np.concatenate((np.repeat(self.factors[:-1], copies, axis=0), self.factors[-1:]))
        return JointMixture(weights, means, factors)

    def with_wide_component(self, z: Array) -> "JointMixture":
        """Return the mixture with a wide component of small weight: the table's covariance, enlarged.

        Parameters
        ----------
        z
            the standardised rows whose shape that is.
        """
        wide = np.linalg.cholesky(np.cov(z.T).reshape(z.shape[1], -1) + 0.1 * np.eye(z.shape[1]))
        return JointMixture(
            np.append(self.log_weights + math.log1p(-WIDE_SHARE), math.log(WIDE_SHARE)),
            np.vstack((self.means, z.mean(0))),
            np.concatenate((self.factors, WIDE_SCALE * wide[None])),
        )


def _products(rows: Array, matrix: Array) -> Array:
    """Multiply rows by a matrix, with results that do not depend on the other rows."""
    found: Array = linear(torch.from_numpy(rows), torch.from_numpy(matrix), block=MANY).numpy()
    return found


class MixtureRows:
    """Standardised rows with the products of their columns, so that EM needs two matrix products.

    A log density of a Gaussian is linear in the products of a row's columns, and so are the moments
    of a component. Where these are too many to keep, components are taken one by one.

    Parameters
    ----------
    z
        standardised rows [B, D]; of very many a part is taken at random.
    seed
        decides which part.
    """

    def __init__(self, z: Array, seed: int) -> None:
        z = self.z = some_rows(z, MOST_ROWS, seed)
        rows, columns = z.shape
        self.pairs = np.tril_indices(columns)
        self.products: Array | None = None
        if rows * (len(self.pairs[0]) + columns + 1) <= MOST_PRODUCTS:
            parts = (z[:, self.pairs[0]] * z[:, self.pairs[1]], z, np.ones((rows, 1)))
            self.products = np.concatenate(parts, axis=1)
        self._starts: dict[tuple[int, int], NDArray[np.int32]] = {}

    def clusters(self, count: int, seed: int) -> NDArray[np.int32]:
        """Return the cluster of each row that expectation maximisation starts from (k-means).

        Parameters
        ----------
        count
            the number of clusters.
        seed
            seed of k-means; results are kept by count and seed.
        """
        if (count, seed) not in self._starts:
            found = KMeans(count, n_init=1, random_state=seed).fit_predict(self.z)
            self._starts[count, seed] = found
        return self._starts[count, seed]

    def blocks(self) -> list[slice]:
        """Return slices of rows, one for each task of a thread."""
        return [slice(start, start + BLOCK) for start in range(0, len(self.z), BLOCK)]

    def log_densities(self, mixture: JointMixture) -> LogDensities:
        """Return a function from a block of rows to log densities by component, weights included.

        Parameters
        ----------
        mixture
            a mixture of the same columns.
        """
        if self.products is None:
            return lambda block: mixture.by_component(self.z[block])
        lower, upper = self.pairs
        columns = self.z.shape[1]
        whitening = np.linalg.inv(mixture.factors)
        precision = whitening.transpose(0, 2, 1) @ whitening
        slopes = np.einsum("kij,kj->ki", precision, mixture.means)
        log_scale = np.log(np.diagonal(mixture.factors, axis1=1, axis2=2)).sum(1)
        constant = mixture.log_weights - log_scale - 0.5 * columns * math.log(2 * math.pi)
        constant -= 0.5 * (slopes * mixture.means).sum(1)
        quadratic = precision[:, lower, upper] * np.where(lower == upper, -0.5, -1.0)
        coefficients = np.hstack((quadratic, slopes, constant[:, None])).T
        products = self.products
        return lambda block: products[block] @ coefficients

    def moments(self, shares: Array, block: slice) -> Moments:
        """Return the moments of the components, given responsibilities of rows.

        Parameters
        ----------
        shares
            how much of each row of the block is each component's [B, K].
        block
            which rows the shares belong to.

        Returns
        -------
        counts : array [K]
            how many rows each component has.
        sums : array [K, D]
            their sums.
        products : array [K, D, D]
            the sums of their products.
        """
        columns = self.z.shape[1]
        if self.products is None:
            z = self.z[block]
            products = np.stack([(z * share[:, None]).T @ z for share in shares.T])
            return shares.sum(0), shares.T @ z, products
        sums = shares.T @ self.products[block]
        products = np.empty((len(sums), columns, columns))
        lower, upper = self.pairs
        products[:, lower, upper] = products[:, upper, lower] = sums[:, : len(lower)]
        return sums[:, -1], sums[:, len(lower) : -1], products


def fit_mixture(
    z: Array | MixtureRows, components: int, prior: float, seed: int, iterations: int = ITERATIONS
) -> JointMixture:
    """Fit K Gaussians to standardised rows by expectation maximisation.

    Parameters
    ----------
    z
        standardised rows [B, D], or `MixtureRows` where several mixtures are fitted to the same.
    components
        K, the number of Gaussians.
    prior
        how many rows the covariance that components share counts for in each: more shrinks harder.
    seed
        seed of the clusters that the fit starts from.
    iterations
        most iterations; the fit stops earlier once it has settled.
    """
    rows = z if isinstance(z, MixtureRows) else MixtureRows(z, seed)
    first = np.eye(components)[rows.clusters(components, seed)]

    def begin(block: slice) -> Moments:
        return rows.moments(first[block], block)

    moments, last = _total(spread(begin, rows.blocks())), -math.inf
    for _ in range(iterations):
        mixture = _maximise(moments, len(rows.z), prior)
        moments, level = _expect(rows, mixture)
        if level - last < SETTLED:
            break
        last = level
    return mixture


def _expect(rows: MixtureRows, mixture: JointMixture) -> tuple[Moments, float]:
    """Return the moments of the components under a mixture, and the mean log density."""
    log_densities = rows.log_densities(mixture)

    def expect(block: slice) -> tuple[Moments, float]:
        shares, level = _share_out(log_densities(block))
        return rows.moments(shares, block), level

    moments, levels = zip(*spread(expect, rows.blocks()), strict=True)
    return _total(moments), sum(levels) / len(rows.z)


def _total(moments: Iterable[Moments]) -> Moments:
    """Add up the moments of all blocks, in their order."""
    counts, sums, products = zip(*moments, strict=True)
    return sum(counts), sum(sums), sum(products)


def _share_out(terms: Array) -> tuple[Array, float]:
    """Return the responsibilities of components for rows, and the sum of the log densities."""
    largest = terms.max(axis=1, keepdims=True)
    shares: Array = np.exp(np.subtract(terms, largest, out=terms), out=terms)
    total = shares.sum(axis=1, keepdims=True)
    level = float((largest + np.log(total)).sum())
    return np.divide(shares, total, out=shares), level


def _maximise(moments: Moments, rows: int, prior: float) -> JointMixture:
    """Return the mixture of highest likelihood, given the moments of its components."""
    counts, sums, products = moments
    columns = sums.shape[1]
    counts = counts + 1e-9
    means = sums / counts[:, None]
    scatter = products - counts[:, None, None] * (means[:, :, None] * means[:, None, :])
    common = scatter.sum(0) / rows
    # With few rows for many columns some directions have no variance: shrink towards the diagonal.
    lean = columns / (columns + rows)
    common = (1 - lean) * common + lean * np.diag(np.diag(common))
    covariances = (scatter + prior * common) / (counts + prior)[:, None, None]
    covariances += SMALLEST_VARIANCE * np.eye(columns)
    weights = (counts + 1) / (counts + 1).sum()
    return JointMixture(np.log(weights), means, np.linalg.cholesky(covariances))


def central_rows(x: Array, share: float) -> NDArray[np.bool_]:
    """Mark all rows but the share that is least likely under a single Gaussian.

    A mixture would use a component for a cluster of outliers. A single Gaussian cannot, and once it is
    fitted again to the remaining rows the outliers no longer influence it.

    Parameters
    ----------
    x
        rows [B, D] in any units.
    share
        the share of rows to leave out.
    """
    kept = np.ones(len(x), dtype=bool)
    spread = x.std(0)
    z = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    for _ in range(CONCENTRATIONS):
        level = fit_mixture(z[kept], 1, float(x.shape[1]), 0).log_prob(z)
        kept = level >= np.quantile(level, share)
    return kept
