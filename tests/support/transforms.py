"""Transforms to test with: one of each kind, and one that a user might write."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from aem.errors import AemError
from aem.model.transforms.affine import Affine
from aem.model.transforms.base import Chain, TableTransform, Transform
from aem.model.transforms.normal_scores import NormalScores
from aem.model.transforms.offset import Offset
from aem.model.transforms.permutation import Permutation
from aem.model.transforms.symmetry import Symmetry
from aem.model.transforms.whitening import Whitening

FEATURES = 3


@dataclass(frozen=True)
class Asinh(TableTransform):
    """What a user might write: y = asinh(x) in one column."""

    kind: ClassVar[str] = "asinh"

    column: int

    def check(self, features: int) -> None:
        if not 0 <= self.column < features:
            raise AemError(f"there is no column {self.column} of {features}")

    def forward(self, x: Tensor) -> Tensor:
        return self._put(x, x[..., self.column].asinh())

    def inverse(self, y: Tensor) -> Tensor:
        return self._put(y, y[..., self.column].sinh())

    def log_slopes(self, x: Tensor) -> Tensor:
        return self._put(torch.zeros_like(x), -0.5 * x[..., self.column].square().log1p())

    def _put(self, rows: Tensor, column: Tensor) -> Tensor:
        columns = list(rows.unbind(-1))
        columns[self.column] = column
        return torch.stack(columns, -1)


def tail(count: int = 4000, seed: int = 0) -> np.ndarray:
    """A column with a spike and a long tail on both sides."""
    return np.random.default_rng(seed).standard_cauchy(count) ** 3


def entangled(rows: int, features: int = 4) -> np.ndarray:
    """Columns in several units that are nearly sums of those before."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, features))
    for d in range(1, features):
        x[:, d] = 0.3 * x[:, d] + x[:, :d] @ rng.normal(size=d)
    found: np.ndarray = x * 10.0 ** np.arange(-1, features - 1) + 7
    return found


def normal_scores(column: int) -> NormalScores:
    found = NormalScores.of(column, tail())
    assert found is not None
    return found


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


OF_TABLES: dict[str, TableTransform] = {
    "normal_scores": normal_scores(1),
    "offset": Offset((1.6e9, 0.0, -273.15)),
    "permutation": Permutation((2, 0, 1)),
    "symmetry": Symmetry(((0, 1, 0), (-1, 0, 0), (2, 0, 1))),
    "asinh": Asinh(2),
}
EVERY: dict[str, Transform] = {
    **OF_TABLES,
    "affine": Affine(double(0.5, -3.0, 7.0), double(2.0, 0.1, 30.0)),
    "whitening": Whitening(
        double(0.5, -3.0, 7.0),
        double(2.0, 0.1, 30.0),
        torch.tensor([[0, 0, 0], [0.7, 0, 0], [-2, 5, 0]], dtype=torch.float64),
    ),
    "no chain": Chain(),
    "chain": Chain(
        (
            Symmetry(((0, 1, 0), (1, 0, 0), (0, 0, 1))),
            normal_scores(1),
            Permutation((2, 0, 1)),
            Offset((4.0, -2.0, 0.5)),
            Asinh(0),
        )
    ),
}


def rows(count: int = 40, seed: int = 1) -> Tensor:
    """Rows in the tails as well, float64."""
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    x[:, 1] = torch.from_numpy(tail(count, seed))
    return x
