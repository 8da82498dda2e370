"""The contract of mixture components: standard distributions that are symmetric about zero.

All methods work elementwise. Tail probabilities are those of the lower tail, because a component is
its own mirror image.
"""

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor


class Component(ABC):
    """A standard distribution: density e^(log_height − exponent(z)), symmetric about zero.

    To write
    --------
    `log_height`, `exponent` (differentiable), `log_cdf`, `cdf`, `quantile`, and of the moments
    `mean`, zero or NaN, and `variance`, infinite or NaN where there is none. `heavy_tailed` says
    that tails fall like a power.
    """

    heavy_tailed: bool = False
    furthest: float = 80.0  # where in single precision the CDF is about to leave the normal numbers
    log_height: float
    mean: float = 0.0
    variance: float

    @abstractmethod
    def exponent(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return the log density at zero minus the log density at z.

        Parameters
        ----------
        z
            values less their location, divided by their scale.
        """

    @abstractmethod
    def cdf(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return the probability of lying below z, with all its digits in the lower tail.

        Parameters
        ----------
        z
            values less their location, divided by their scale.
        """

    @abstractmethod
    def log_cdf(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return the logarithm of the CDF, also where the CDF itself rounds to zero.

        Parameters
        ----------
        z
            values less their location, divided by their scale.
        """

    @abstractmethod
    def quantile(self, u: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return the points where the CDF is u.

        Parameters
        ----------
        u
            probabilities: for any positive normal number below one the quantile must be finite.
        """

    def decay(self, z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return the derivative of `log_cdf`, the rate at which the lower tail decays.

        Parameters
        ----------
        z
            values less their location, divided by their scale.
        """
        return (self.log_height - self.exponent(z) - self.log_cdf(z)).exp()
