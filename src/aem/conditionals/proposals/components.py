"""What a mixture asks of its components: a standard distribution, symmetric about zero.

Everything is elementwise, and everything about tails is about the lower one: a component is its own
mirror image.
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
        """Return how far the log density lies below that at zero.

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
        """Return the derivative of log_cdf: how fast the mass of a lower tail falls.

        Parameters
        ----------
        z
            values less their location, divided by their scale.
        """
        return (self.log_height - self.exponent(z) - self.log_cdf(z)).exp()
