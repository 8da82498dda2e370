"""The columns of a table in another order."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from aem.errors import AemError
from aem.model.transforms.base import TableTransform


@dataclass(frozen=True)
class Permutation(TableTransform):
    """Columns in another order, y_d = x_{order[d]}.

    Parameters
    ----------
    order
        for each column of the model, the number of the column in the table.
    """

    kind: ClassVar[str] = "permutation"

    order: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise AemError(f"the order {self.order} does not name each column once")

    def check(self, features: int) -> None:
        """Refuse a table of another number of columns."""
        if len(self.order) != features:
            raise AemError(f"the order has {len(self.order)} columns, the table {features}")

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return columns in the order of the model."""
        return x[..., list(self.order)]

    def inverse(self, y: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return columns in the order of the table."""
        return y[..., sorted(range(len(self.order)), key=self.order.__getitem__)]

    def log_slopes(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return zeros: an order changes no volume."""
        return torch.zeros_like(x)

    def reorder(self, terms: Shaped[Tensor, "*B D"]) -> Shaped[Tensor, "*B D"]:
        """Move terms with their columns."""
        return terms[..., list(self.order)]
