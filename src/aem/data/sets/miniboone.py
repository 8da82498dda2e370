"""MINIBOONE: particle identification variables of the electron neutrinos MiniBooNE looked for."""

from pathlib import Path
from typing import Final

import numpy as np

from aem.data.info import DataFile, DatasetInfo, Source, SplitSizes
from aem.data.readers import read_array, read_arrays, read_numbers, refusing
from aem.data.sets.maf import maf_sources
from aem.data.sets.recipes import Three, continuous_columns, hold_out, split_three, standardise
from aem.data.splits import Floats, TableSplits
from aem.errors import AemError

_VARIABLES: Final = 50
_COLUMNS: Final = 43  # those of the variables that MAF took for continuous
_MISSING_BELOW: Final = -100  # -999 marks an event without measurements


def read_text(path: Path) -> Floats:
    """Read the signal of UCI's MiniBooNE_PID.txt and clean it as MAF did.

    The first line counts signal and background, and the signal comes first.
    """
    with refusing(path, "UCI's MiniBooNE_PID.txt"), path.open() as file:
        signal, _background = map(int, file.readline().split())
    rows = read_numbers(
        path, separator=r"\s+", columns=range(_VARIABLES, _VARIABLES + 1), max_rows=signal
    )
    if len(rows) < signal:
        raise AemError(f"{path} announces {signal} rows of signal but ends after {len(rows)}")
    rows = rows[rows[:, 0] >= _MISSING_BELOW]
    return rows[:, continuous_columns(rows)]


def read_npy(path: Path) -> Floats:
    """Read MAF's data.npy, which is cleaned already."""
    rows = read_array(path)
    if rows.ndim != 2 or rows.shape[1] != _COLUMNS:
        raise AemError(
            f"{path} holds an array of shape {rows.shape}, expected rows of {_COLUMNS} columns"
        )
    return np.asarray(rows, dtype=np.float64)


def split(rows: Floats) -> Three:
    """Split without shuffling and standardise by train and validation together.

    Parameters
    ----------
    rows
        cleaned rows, in the order of MAF's file.
    """
    known, _test = hold_out(rows)
    return split_three(standardise(rows, known))


def prepare(rows: Floats) -> TableSplits:
    """Turn cleaned rows into splits by MAF's recipe."""
    columns = tuple(f"x{i}" for i in range(rows.shape[1]))
    return TableSplits.of("miniboone", split(rows), columns)


def read_subset(path: Path) -> TableSplits:
    """Read miniboone-40: a part of MAF's training rows, on the columns known in all of them."""
    arrays = read_arrays(path, ("train_first1523", "extra_train_nan3", "val", "test", "cols40"))
    known = arrays.pop("cols40")
    for name, table in arrays.items():
        if table.ndim != 2 or not np.isin(known, range(table.shape[1])).all():
            raise AemError(f"{path}: {name} has shape {table.shape}, too few for columns {known}")
    first, extra, validation, test = (table[:, known] for table in arrays.values())
    columns = tuple(f"x{i}" for i in known)
    return TableSplits.of("miniboone-40", (np.vstack([first, extra]), validation, test), columns)


_SUBSET: Final = DataFile(
    "miniboone/miniboone_partial_maf_normalised.npz",
    sha256="5936faa0fb11129838e55b32c39a811b85bb61f85a2842da009e30a0cb160b47",
    size=2_169_680,
)

DATASETS: Final = (
    DatasetInfo(
        name="miniboone",
        description="Particle identification, signal only",
        rows=SplitSizes(29_556, 3_284, 3_648),
        columns=_COLUMNS,
        licence="CC BY 4.0",
        url="https://archive.ics.uci.edu/dataset/199",
        sources=(
            Source(
                (DataFile("miniboone/MiniBooNE_PID.txt"),), lambda path: prepare(read_text(path))
            ),
            *maf_sources(lambda path: prepare(read_npy(path)), "miniboone/data.npy"),
        ),
    ),
    DatasetInfo(
        name="miniboone-40",
        description="Particle identification, a part of the training rows and 40 columns",
        rows=SplitSizes(6_862, 3_284, 3_648),
        columns=40,
        licence="CC BY 4.0",
        url="https://archive.ics.uci.edu/dataset/199",
        sources=(Source((_SUBSET,), read_subset),),
        by_hand=f"it is not published, put a copy at {_SUBSET.path}",
    ),
)
