"""Tables of real data that methods are compared on, each as training, validation and test rows."""

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import KFold

from aem.data import registry
from aem.data.info import data_root

Array = NDArray[np.float64]
Split = tuple[Array, Array, Array]  # training, validation and test rows

# Files of numbers below the folder of the data, and whether a line of names comes first.
FILES: Final = {
    "protein": ("uci/protein.csv.gz", False),
    "parkinsons": ("uci/parkinsons.csv.gz", False),
    "uci-wine": ("uci/wine.csv.gz", False),
    "concrete": ("uci/concrete.csv.gz", False),
    "housing": ("mixed/housing.csv.gz", True),
    "diamonds": ("mixed/diamonds.csv.gz", True),
}


def splits(name: str) -> list[Split]:
    """Return one split, or five folds of a small table.

    Parameters
    ----------
    name
        magic, wine, breast-cancer, one of `FILES`, or a data set of `aem.data`.
    """
    if name == "magic":
        return [shuffled(np.load(data_root() / "adbench" / "22_magic.gamma.npz")["X"])]
    if name in FILES:
        path, named = FILES[name]
        return [shuffled(numeric_columns(data_root() / path, named=named))]
    if name in ("wine", "breast-cancer"):
        return list(_folds((load_wine if name == "wine" else load_breast_cancer)().data))
    table = registry.load(name)
    train, validation, test = (
        part.astype(np.float64) for part in (table.train, table.validation, table.test)
    )
    return [(train, validation, test)]


def shuffled(x: Array) -> Split:
    """Return eight tenths of the rows, one tenth and one tenth, in a random order.

    Parameters
    ----------
    x
        all rows.
    """
    x = x.astype(np.float64)
    x = x[np.random.default_rng(0).permutation(len(x))]
    first, second = int(0.8 * len(x)), int(0.9 * len(x))
    return x[:first], x[first:second], x[second:]


def numeric_columns(path: Path, *, named: bool) -> Array:
    """Read the columns of a packed CSV file that hold numbers in every row, and more than one.

    Parameters
    ----------
    path
        the file.
    named
        whether its first line has the names of the columns.
    """
    with gzip.open(path, "rt", newline="") as file:
        lines = list(csv.reader(file))[named:]
    columns = [column for column in map(_numbers, zip(*lines, strict=True)) if column is not None]
    return np.stack([column for column in columns if np.ptp(column) > 0], 1)


def _numbers(texts: tuple[str, ...]) -> Array | None:
    try:
        found = np.array([float(text) for text in texts])
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def _folds(x: Array) -> Iterator[Split]:
    for train, test in KFold(5, shuffle=True, random_state=0).split(x):
        rows = x[train]
        kept = len(rows) // 8
        yield rows[kept:], rows[:kept], x[test]
