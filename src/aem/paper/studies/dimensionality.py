"""Figure 2: why one dimension at a time. Importance sampling of a Gaussian as D grows.

Target N(0, I), proposal N(0, 1.25² I), both normalised, so log Z = 0. A weight is a product of D
independent factors, and its relative variance (σ² / √(2σ² − 1))^D − 1 grows exponentially: with 20
samples the estimate is soon a rare draw or nothing.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from aem.errors import AemError

DIMENSIONS = (1, 2, 5, 10, 20, 50, 100, 200)
TARGET_SCALE, PROPOSAL_SCALE = 1.0, 1.25
SAMPLES, TRIALS = 20, 50


@dataclass(frozen=True)
class DimensionalityStudy:
    """The settings of the study; the defaults are those of the paper.

    Parameters
    ----------
    dimensions
        the numbers D of dimensions.
    samples
        draws of the proposal per estimate.
    trials
        estimates per dimension.
    target_scale
        standard deviation of the target in each dimension.
    proposal_scale
        standard deviation of the proposal.
    """

    dimensions: tuple[int, ...] = DIMENSIONS
    samples: int = SAMPLES
    trials: int = TRIALS
    target_scale: float = TARGET_SCALE
    proposal_scale: float = PROPOSAL_SCALE

    def __post_init__(self) -> None:
        if self.samples < 1 or self.trials < 1 or not self.dimensions or min(self.dimensions) < 1:
            raise AemError("samples, trials and dimensions must be positive")


@dataclass(frozen=True)
class Estimates:
    """Estimates of log Z = 0 in D dimensions.

    Parameters
    ----------
    dimension
        D, the number of dimensions.
    log_z
        the estimates, one per trial.
    weight_variance
        relative variance of a single weight, exact.
    """

    dimension: int
    log_z: NDArray[np.float64]
    weight_variance: float


def weight_variance(dimension: int, scale: float = PROPOSAL_SCALE) -> float:
    """Return Var(w) / E(w)² in closed form; infinite for σ² ≤ ½.

    Parameters
    ----------
    dimension
        D, the number of dimensions.
    scale
        σ, the proposal's standard deviation in units of the target's.
    """
    if 2 * scale**2 <= 1:
        return math.inf
    return math.expm1(dimension * math.log(scale**2 / math.sqrt(2 * scale**2 - 1)))


def study(settings: DimensionalityStudy | None = None, seed: int = 0) -> list[Estimates]:
    """Estimate log Z repeatedly in each dimension.

    Parameters
    ----------
    settings
        what is varied; the paper's values without any.
    seed
        seed of the draws.
    """
    settings = settings or DimensionalityStudy()
    rng = np.random.default_rng(seed)
    scale = settings.proposal_scale / settings.target_scale
    shape = (settings.trials, settings.samples)
    return [
        Estimates(d, _log_z(rng, d, shape, scale), weight_variance(d, scale))
        for d in settings.dimensions
    ]


def _log_z(
    rng: np.random.Generator, dimension: int, shape: tuple[int, int], scale: float
) -> NDArray[np.float64]:
    # The log weight depends on the draw through its squared length alone, which is χ² with D
    # degrees of freedom: no need to draw D numbers.
    length = rng.chisquare(dimension, size=shape)  # |y|² / σ²
    log_w = dimension * math.log(scale) - 0.5 * length * (scale**2 - 1)
    log_z: NDArray[np.float64] = logsumexp(log_w, axis=1) - math.log(shape[1])
    return log_z
