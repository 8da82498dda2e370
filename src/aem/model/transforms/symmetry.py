"""A symmetry of a table: a linear map of whole numbers that keeps volumes, such as a mirror image."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aem.errors import AemError
from aem.model.transforms.base import TableTransform
from aem.nn.rowwise import linear


@dataclass(frozen=True)
class Symmetry(TableTransform):
    """y = M x with a matrix of whole numbers and determinant ±1, such as a mirror image.

    Parameters
    ----------
    matrix
        the rows of M, D tuples of D whole numbers.
    """

    kind: ClassVar[str] = "symmetry"

    matrix: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        size = len(self.matrix)
        if any(len(row) != size for row in self.matrix):
            raise AemError("a symmetry must be a square matrix")
        if any(value != round(value) for row in self.matrix for value in row):
            raise AemError("a symmetry must be a matrix of whole numbers")
        if abs(round(np.linalg.det(np.array(self.matrix)))) != 1:
            raise AemError("a symmetry must keep volumes: its determinant must be 1 or -1")

    def check(self, features: int) -> None:
        """Refuse a table of another number of columns."""
        if len(self.matrix) != features:
            raise AemError(f"the symmetry has {len(self.matrix)} columns, the table {features}")

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Multiply rows by the matrix."""
        return linear(x, torch.tensor(self.matrix).to(x))

    def inverse(self, y: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Multiply rows by the inverse matrix, which has whole numbers, too."""
        inverse = np.linalg.inv(np.array(self.matrix)).round()
        return linear(y, torch.from_numpy(inverse).to(y))

    def log_slopes(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return zeros: the determinant is ±1."""
        return torch.zeros_like(x)
