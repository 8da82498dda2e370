"""The contract of transforms, and chains of them.

A transform y = t(x) maps rows of a table to the input of a model. A density of y is a density of x:
log p(x) = log p(y) + log |det dt/dx|.

To write a new one, derive from `Transform` and supply `forward`, `inverse` and `log_slopes`. One that
belongs to a table is also a frozen dataclass of plain numbers with a `kind`, listed in
`aem.model.transforms.records`: files hold it as the mapping that `record` gives.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from aem.errors import AemError


class Transform(ABC):
    """An invertible map of rows of D columns; `forward`, `inverse` and `log_slopes` define it."""

    @abstractmethod
    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map rows of the table to what the model reads.

        Parameters
        ----------
        x
            rows in the units of the table.
        """

    @abstractmethod
    def inverse(self, y: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map what the model reads back to rows of the table.

        Parameters
        ----------
        y
            rows as the model reads them.
        """

    @abstractmethod
    def log_slopes(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return log |dy_d / dx| by column of y: terms whose sum is log |det dy/dx|.

        Added to log densities of y_d given the columns before, they give log densities in the units
        of the table. Where a transform mixes columns only their sum has a meaning.

        Parameters
        ----------
        x
            rows in the units of the table.
        """

    def log_det(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B"]:
        """Return log |det dy/dx| of rows.

        Parameters
        ----------
        x
            rows in the units of the table.
        """
        return self.log_slopes(x).sum(-1)


class TableTransform(Transform):
    """A transform of a table, whose parameters are plain numbers that a file can hold."""

    kind: ClassVar[str]

    def record(self) -> dict[str, Any]:
        """Return what a file holds: the kind and the fields of the dataclass."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    def check(self, features: int) -> None:
        """Refuse a table of another number of columns than the transform is for.

        Parameters
        ----------
        features
            number of columns of the table.
        """

    def reorder(self, terms: Shaped[Tensor, "*B D"]) -> Shaped[Tensor, "*B D"]:
        """Reorder terms by column of x to columns of y.

        Parameters
        ----------
        terms
            one number per row and column of the table, such as log densities.
        """
        return terms


@dataclass(frozen=True)
class Chain(Transform):
    """Transforms one after the other; none at all is the identity.

    Parameters
    ----------
    parts
        the transforms, the one nearest to the table first.
    """

    parts: tuple[TableTransform, ...] = ()

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map rows through all parts."""
        for part in self.parts:
            x = part.forward(x)
        return x

    def inverse(self, y: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map rows back through all parts, the last first."""
        for part in reversed(self.parts):
            y = part.inverse(y)
        return y

    def log_slopes(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Add up the terms of all parts, by column of the result."""
        total = x.new_zeros(x.shape)
        for part in self.parts:
            total = part.reorder(total) + part.log_slopes(x)
            x = part.forward(x)
        return total

    def reorder(self, terms: Shaped[Tensor, "*B D"]) -> Shaped[Tensor, "*B D"]:
        """Reorder terms by column of x to columns of y, through all parts.

        Parameters
        ----------
        terms
            one number per row and column of the table.
        """
        for part in self.parts:
            terms = part.reorder(terms)
        return terms

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns of y.

        Parameters
        ----------
        columns
            names of the columns of x.
        """
        return tuple(columns[place] for place in self.reorder(torch.arange(len(columns))).tolist())

    def then(self, *further: TableTransform) -> "Chain":
        """Return this chain with further parts behind it, nearer to the model.

        Parameters
        ----------
        further
            transforms, in the order in which rows pass through them.
        """
        return Chain((*self.parts, *further))

    def check(self, features: int) -> None:
        """Refuse a table of another number of columns than the parts were made for.

        Parameters
        ----------
        features
            number of columns of the table.
        """
        for part in self.parts:
            part.check(features)


def require_finite(name: str, numbers: Sequence[float]) -> None:
    """Raise an error if numbers are not finite.

    Parameters
    ----------
    name
        what the numbers are, for the message.
    numbers
        numbers that must be finite.
    """
    if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        raise AemError(f"{name} has numbers that are not finite")
