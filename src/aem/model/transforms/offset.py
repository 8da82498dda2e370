"""A number subtracted from each column, for columns far from zero."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from aem.errors import AemError
from aem.model.transforms.base import TableTransform, require_finite


@dataclass(frozen=True)
class Offset(TableTransform):
    """y = x − offset, exactly: a model in single precision then sees digits that differ.

    Parameters
    ----------
    offsets
        one number per column; times in seconds since 1970, say, have one of some 10⁹.
    """

    kind: ClassVar[str] = "offset"

    offsets: tuple[float, ...]

    def __post_init__(self) -> None:
        require_finite("the offset of a column", self.offsets)

    def check(self, features: int) -> None:
        """Refuse a table of another number of columns."""
        if len(self.offsets) != features:
            raise AemError(f"there are {len(self.offsets)} offsets for {features} columns")

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Subtract the offsets."""
        return x - self._as(x)

    def inverse(self, y: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Add the offsets."""
        return y + self._as(y)

    def log_slopes(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return zeros: a shift changes no volume."""
        return torch.zeros_like(x)

    def _as(self, x: Tensor) -> Tensor:
        return torch.tensor(self.offsets, dtype=x.dtype, device=x.device)
