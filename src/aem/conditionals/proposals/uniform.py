"""A fixed uniform proposal, for columns whose bounds are known."""

import math
from collections.abc import Callable
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from aem.conditionals.proposals.base import Head, Proposal
from aem.config import ModelConfig
from aem.errors import AemError


class FixedUniform(Proposal):
    """The uniform distribution on [low, high], which is the same for all rows.

    Parameters
    ----------
    low
        lower bound of each conditional, in standardised units.
    high
        upper bound of each conditional.
    """

    bounded = True

    def __init__(self, low: Float[Tensor, "*B"], high: Float[Tensor, "*B"]) -> None:
        self.low, self.high = low, high

    @property
    def batch(self) -> Float[Tensor, "*B"]:
        """A tensor of the batch's shape, type and device."""
        return self.low

    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the proposal with a function applied to its bounds."""
        return type(self)(change(self.low), change(self.high))

    def log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """−log width inside, −inf outside."""
        low, high = self.low[..., None], self.high[..., None]
        inside = (x >= low) & (x <= high)
        return torch.where(inside, -(high - low).log(), -torch.inf)

    def cdf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying below each node."""
        low, high = self.low[..., None], self.high[..., None]
        return ((x - low) / (high - low)).clamp(0, 1)

    def sf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying above each node."""
        low, high = self.low[..., None], self.high[..., None]
        return ((high - x) / (high - low)).clamp(0, 1)

    def icdf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return quantiles, linear between the bounds."""
        low, high = self.low[..., None], self.high[..., None]
        return low + u * (high - low)

    def mirrored(self) -> Self:
        """The distribution of −x."""
        return type(self)(-self.high, -self.low)

    def moments(self) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        """Return the middle, and the width divided by √12."""
        return 0.5 * (self.low + self.high), (self.high - self.low) / math.sqrt(12)


class UniformHead(Head):
    """Gives every row the same uniform proposal, which has no parameters.

    Parameters
    ----------
    low
        lower bound of each column, in standardised units.
    high
        upper bound of each column, above the lower.
    """

    bounded = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Float[Tensor, " D"], high: Float[Tensor, " D"]) -> None:
        super().__init__()
        if not bool((low < high).all()):
            raise AemError("a uniform proposal needs bounds with low < high for every column")
        self.size = 0
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    @classmethod
    def from_config(
        cls, config: ModelConfig, shift: Float[Tensor, " D"], scale: Float[Tensor, " D"]
    ) -> Self:
        """Make a head with the bounds that the settings name, standardised."""
        if len(config.bounds) != config.features:
            raise AemError(
                f"'bounds' has {len(config.bounds)} pairs for {config.features} features"
            )
        low, high = torch.tensor(config.bounds, dtype=torch.float64).unbind(-1)
        shift, scale, dtype = shift.double(), scale.double(), shift.dtype
        return cls(((low - shift) / scale).to(dtype), ((high - shift) / scale).to(dtype))

    def initial_bias(self) -> Float[Tensor, " 0"]:
        """Return an empty tensor, as the proposal has no parameters."""
        return torch.zeros(0)

    def forward(
        self,
        phi: Float[Tensor, "*B P"],
        feature: int | None = None,
        past: Float[Tensor, "*A N"] | None = None,
    ) -> FixedUniform:
        """Expand the bounds to the batch shape [..., D], or those of one feature to any shape."""
        low, high = (
            (self.low, self.high) if feature is None else (self.low[feature], self.high[feature])
        )
        return FixedUniform(low.expand(phi.shape[:-1]), high.expand(phi.shape[:-1]))
