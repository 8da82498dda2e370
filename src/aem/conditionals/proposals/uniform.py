"""A fixed uniform proposal, for columns whose bounds are known."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.proposals.base import nodes_around
from aem.errors import AemError


class FixedUniform:
    """The same uniform on [low, high] whatever the row; the bounds are the user's."""

    def __init__(self, low: Float[Tensor, "*B"], high: Float[Tensor, "*B"]) -> None:
        self.low, self.high = low, high

    @property
    def batch(self) -> Float[Tensor, "*B"]:
        """A tensor of the batch's shape, type and device."""
        return self.low

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
        """Quantiles."""
        low, high = self.low[..., None], self.high[..., None]
        return low + u * (high - low)

    transport = icdf

    def nodes_around(
        self, x: Float[Tensor, "*B"], nodes: int
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B S"], Int[Tensor, "*B"]]:
        """log q(x), one point in each of S strata with x in its own, and which that is."""
        return nodes_around(self, x, nodes)

    def position(self, x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """The only uniform there is for x."""
        return self.cdf(x[..., None])[..., 0]

    def select(self, index: Int[Tensor, " P"]) -> "FixedUniform":
        """The proposals of some conditionals of a flat batch."""
        return FixedUniform(self.low[index], self.high[index])

    def flatten(self) -> "FixedUniform":
        """One batch axis."""
        return FixedUniform(self.low.reshape(-1), self.high.reshape(-1))


class UniformHead(torch.nn.Module):
    """No parameters: the proposal is the same for every row."""

    low: Tensor
    high: Tensor

    def __init__(self, low: Float[Tensor, " D"], high: Float[Tensor, " D"]) -> None:
        super().__init__()
        if not bool((low < high).all()):
            raise AemError("a uniform proposal needs bounds with low < high for every column")
        self.size = 0
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def initial_bias(self) -> Float[Tensor, " 0"]:
        """Nothing to start."""
        return torch.zeros(0)

    def forward(self, phi: Float[Tensor, "*B P"], feature: int | None = None) -> FixedUniform:
        """Spread the bounds over the batch: over [..., D], or one feature's over any shape."""
        low, high = (
            (self.low, self.high) if feature is None else (self.low[feature], self.high[feature])
        )
        return FixedUniform(low.expand(phi.shape[:-1]), high.expand(phi.shape[:-1]))
