"""Mixtures of Student-t distributions (Cauchy with one degree of freedom) for heavy-tailed columns.

With r = z / √ν and c = r / √(1 + r²) the density of c is (1 − c²)^(a − 1) / B(a, ½), a = ν / 2, so

    P(Z > z) = (1 − c)^a G(c),    G(c) = ∫₀¹ w^(a − 1) (2 − (1 − c) w)^(a − 1) dw / B(a, ½).

G has no singularity but at c = −1. So its logarithm on [0, 1] is a polynomial of moderate degree to the
last digits, and the upper tail has all its digits, for 1 − c = 1 / (h (h + r)) with h = √(1 + r²).
For the same reason log((1 − c) / u^(1/a)) is nearly a polynomial of u^(1/a), from which Newton's method
on the logarithms finds the quantile of u in two steps.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from aem.conditionals.proposals.components import Component
from aem.conditionals.proposals.mixture import MixtureHead
from aem.config import ModelConfig

Array = NDArray[np.float64]

DEGREE = 28  # largest degree of the polynomials, whose error is 1e-13
NEGLIGIBLE = 1e-16  # Chebyshev coefficients below this are dropped
NEWTON_STEPS = 2
JACOBI_NODES = 20
SETTLING = 60  # steps of the iteration that fits the second polynomial


class StudentT(Component):
    """The standard Student-t distribution.

    Parameters
    ----------
    degrees
        degrees of freedom ν, from 1 (Cauchy) to 100 (hardly to be told from a Gaussian). Tails fall
        like |z|^(−ν − 1), and moments of order ν and above do not exist. Below 1 quantiles of some
        probabilities would overflow.
    """

    heavy_tailed = True

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees
        self.a, self.root = 0.5 * degrees, math.sqrt(degrees)
        self.log_beta = float(special.betaln(0.5, self.a))
        self.log_height = -self.log_beta - 0.5 * math.log(degrees)
        self.mean = 0.0 if degrees > 1 else math.nan
        self.variance = degrees / (degrees - 2) if degrees > 2 else math.inf
        self.log_g, self.log_ratio = _series(degrees)

    def exponent(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return (ν + 1) / 2 · log(1 + z² / ν)."""
        return (self.degrees + 1) * _hypotenuse(z / self.root).log()

    def _log_tail(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """log P(Z > |z|)."""
        r = (z.abs() / self.root).clamp(max=0.25 * torch.finfo(z.dtype).max)  # ∞ / ∞ is no number
        h = _hypotenuse(r)
        return _horner(self.log_g, 2 * (r / h) - 1) - self.a * (h.log() + (h + r).log())

    def cdf(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return P(Z < z), computed from the lower tail."""
        tail = self._log_tail(z).exp()
        return torch.where(z < 0, tail, 1 - tail)

    def log_cdf(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return log P(Z < z)."""
        tail = self._log_tail(z)
        return torch.where(z < 0, tail, torch.log1p(-tail.exp()))

    def quantile(self, u: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return the point below which the probability is u."""
        log_u = torch.minimum(u, 1 - u).log()
        share = (log_u / self.a).exp()
        log_delta = log_u / self.a + _horner(self.log_ratio, 2 ** (1 + 1 / self.a) * share - 1)
        for _ in range(NEWTON_STEPS):
            log_delta = log_delta.clamp(max=0.0)
            delta = log_delta.exp()
            log_tail = _horner(self.log_g, 1 - 2 * delta) + self.a * log_delta
            log_density = self.a * log_delta + (self.a - 1) * (2 - delta).log() - self.log_beta
            log_delta = log_delta - (log_tail - log_u) * (log_tail - log_density).exp()
        delta = log_delta.clamp(max=0.0).exp()
        r = (1 - delta) / (2 - delta).sqrt() * (-0.5 * log_delta).exp()
        return self.root * torch.where(u < 0.5, -r, r)


class StudentTHead(MixtureHead):
    """Turns φ [*B, 3K] into a mixture of Student-t distributions with the same degrees of freedom.

    Parameters
    ----------
    components
        K, the number of components.
    min_scale
        the smallest scale a component may have, in standardised units.
    degrees
        degrees of freedom of all components, from 1 to 100.
    """

    def __init__(self, components: int, min_scale: float, degrees: float) -> None:
        super().__init__(components, min_scale)
        self.component = StudentT(degrees)

    @classmethod
    def from_config(
        cls, config: ModelConfig, shift: Float[Tensor, " D"], scale: Float[Tensor, " D"]
    ) -> Self:
        """Make a head with the components and the degrees of freedom that the settings name."""
        return cls(config.components, config.min_scale, config.degrees_of_freedom)


def _hypotenuse(r: Tensor) -> Tensor:
    """√(1 + r²), without squaring what has no square; torch.hypot depends on the place in a tensor."""
    enough = torch.finfo(r.dtype).eps ** -0.5  # beyond, one is nothing
    return torch.where(r.abs() < enough, (1 + r.clamp(-enough, enough).square()).sqrt(), r.abs())


def _horner(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """A polynomial whose coefficients come highest degree first."""
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


@cache
def _series(degrees: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """log G on [0, 1], and log((1 − c) / p) as p = u^(1/a) goes from 0 to its value at the median."""
    a = 0.5 * degrees
    nodes, weights = special.roots_sh_jacobi(JACOBI_NODES, a, a)
    weights = weights / (a * weights.sum())  # of w^(a − 1), whose integral is 1 / a
    log_beta = special.betaln(0.5, a)

    def log_g(c: Array) -> Array:
        powers = (2 - (1 - c)[:, None] * nodes) ** (a - 1)
        return np.asarray(np.log((powers * weights).sum(-1)) - log_beta)

    def log_ratio(p: Array) -> Array:
        x = np.log(p)
        for _ in range(SETTLING):
            delta = np.exp(x)
            log_tail = log_g(1 - delta) + a * x
            log_density = a * x + (a - 1) * np.log(2 - delta) - log_beta
            step = (log_tail - a * np.log(p)) * np.exp(log_tail - log_density)
            x = np.minimum(x - np.clip(step, -1, 1), 0)
        return np.asarray(x - np.log(p))

    return _polynomial(log_g, 1.0), _polynomial(log_ratio, 0.5 ** (1 / a))


def _polynomial(function: Callable[[Array], Array], end: float) -> tuple[float, ...]:
    """A function on [0, end] as a polynomial on [−1, 1], highest degree first."""
    points = chebyshev.chebpts1(DEGREE + 1)
    fitted = chebyshev.chebfit(points, function(0.5 * end * (1 + points)), DEGREE)
    shortened = chebyshev.chebtrim(fitted, NEGLIGIBLE * np.abs(fitted).max())
    return tuple(chebyshev.cheb2poly(shortened)[::-1].tolist())
