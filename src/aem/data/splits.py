"""Training, validation and test rows of a data set, as its loader returns them."""

from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from aem.errors import AemError

Table: TypeAlias = npt.NDArray[np.float32]
Floats: TypeAlias = npt.NDArray[np.float64]
# A matrix of whole numbers and determinant ±1 that maps rows to rows about as likely.
SymmetryMatrix: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TableSplits:
    """A prepared data set: float32 tables of rows × columns, ready to train on.

    Parameters
    ----------
    name
        name of the data set.
    train
        rows to train on [B, D].
    validation
        rows that choose between models and steps.
    test
        rows to score, which decide nothing.
    columns
        names of the columns.
    symmetries
        matrices that map rows to rows about as likely, where any are known; the first is the
        identity.
    steps
        steps of the grids that columns lie on, zero for columns without one: on a grid a density
        has no bound. Empty if no column does.
    """

    name: str
    train: Table
    validation: Table
    test: Table
    columns: tuple[str, ...]
    symmetries: tuple[SymmetryMatrix, ...] = ()
    steps: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for split in ("train", "validation", "test"):
            table: Table = getattr(self, split)
            if table.ndim != 2 or table.shape[1] != len(self.columns):
                raise AemError(
                    f"the {split} split of {self.name} has shape {table.shape}, "
                    f"which does not fit its {len(self.columns)} columns"
                )
            if not np.isfinite(table).all():
                raise AemError(f"the {split} split of {self.name} has missing or infinite values")

    @classmethod
    def of(
        cls,
        name: str,
        splits: tuple[npt.NDArray[np.floating], npt.NDArray[np.floating], npt.NDArray[np.floating]],
        columns: tuple[str, ...],
    ) -> Self:
        """Round the three tables of a recipe to float32.

        Parameters
        ----------
        name
            name of the data set.
        splits
            training, validation and test rows.
        columns
            names of the columns.
        """
        train, validation, test = (np.asarray(split, dtype=np.float32) for split in splits)
        return cls(name, train, validation, test, columns)
