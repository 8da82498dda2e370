"""HEPMASS: simulated particle collisions in which a particle of mass 1000 is born.

MAF kept the signal among the first tenth of UCI's rows, 26 of the 27 features, and of these the
continuous ones.
"""

from pathlib import Path
from typing import Final

import numpy as np

from aem.data.info import DataFile, DatasetInfo, Source, SplitSizes
from aem.data.readers import read_arrays, read_numbers
from aem.data.sets.maf import maf_sources
from aem.data.sets.recipes import continuous_columns, hold_out, standardise
from aem.data.splits import Floats, TableSplits
from aem.errors import AemError

_FEATURES: Final = 26  # UCI's heading of the training file names no more, and so MAF took no more
_CONTINUOUS: Final = 21
_TRAIN_ROWS: Final = 700_000
_TEST_ROWS: Final = 350_000


def read_signal(path: Path, max_rows: int) -> Floats:
    """Read the features of the signal among the first rows of 1000_train.csv or 1000_test.csv.

    Parameters
    ----------
    path
        one of the two files.
    max_rows
        how many rows, of signal and background, to look at.
    """
    width = 1 + _FEATURES  # the label comes first, and a 27th feature may follow
    rows = read_numbers(path, separator=",", columns=range(width, width + 2), max_rows=max_rows)
    if not np.isin(rows[:, 0], (0, 1)).all():
        raise AemError(f"{path} does not begin with a column of labels 0 and 1")
    return rows[rows[:, 0] == 1, 1:width]


def prepare(train: Floats, test: Floats) -> TableSplits:
    """Keep the continuous columns, standardise by the training file, cut off validation.

    Parameters
    ----------
    train
        features of the signal in the training file.
    test
        those in the test file.
    """
    kept = continuous_columns(train)
    train, test = train[:, kept], test[:, kept]
    standard_test = standardise(test, train, ddof=1)
    splits = (*hold_out(standardise(train, train, ddof=1)), standard_test)
    return TableSplits.of("hepmass", splits, tuple(f"f{i}" for i in kept))


def read(train_path: Path, test_path: Path) -> TableSplits:
    """Read HEPMASS from UCI's two files or from the first tenth of them in MAF's archive."""
    return prepare(read_signal(train_path, _TRAIN_ROWS), read_signal(test_path, _TEST_ROWS))


def read_subset(path: Path) -> TableSplits:
    """Read hepmass-5k: standardised before, with a last column that MAF does not have."""
    rows = read_arrays(path, ("train", "test"))
    for split, table in rows.items():
        if table.ndim != 2 or table.shape[1] < _CONTINUOUS:
            raise AemError(f"{path}: {split} has shape {table.shape}, not {_CONTINUOUS} columns")
    train, validation = hold_out(rows["train"][:, :_CONTINUOUS])
    columns = tuple(f"x{i}" for i in range(_CONTINUOUS))
    return TableSplits.of("hepmass-5k", (train, validation, rows["test"][:, :_CONTINUOUS]), columns)


_SUBSET: Final = DataFile(
    "hepmass/hepmass_subset.npz",
    sha256="1301396c8e3030d3583cc3d24cace8b6b3f6ba7d6f5eb1efc70adab889fe07f1",
    size=803_908,
)

DATASETS: Final = (
    DatasetInfo(
        name="hepmass",
        description="Simulated particle collisions, signal only",
        rows=SplitSizes(315_123, 35_013, 174_987),
        columns=_CONTINUOUS,
        licence="CC BY 4.0",
        url="https://archive.ics.uci.edu/dataset/347",
        sources=(
            *maf_sources(read, "hepmass/1000_train.csv", "hepmass/1000_test.csv"),
            *maf_sources(read, "HEPMASS/1000_train.csv", "HEPMASS/1000_test.csv"),
            Source(
                (DataFile("hepmass/1000_train.csv.gz"), DataFile("hepmass/1000_test.csv.gz")), read
            ),
        ),
    ),
    DatasetInfo(
        name="hepmass-5k",
        description="Simulated particle collisions, the first ten thousand rows' signal",
        rows=SplitSizes(4_506, 500, 4_924),
        columns=_CONTINUOUS,
        licence="CC BY 4.0",
        url="https://archive.ics.uci.edu/dataset/347",
        sources=(Source((_SUBSET,), read_subset),),
        by_hand=f"it is not published, put a copy at {_SUBSET.path}",
    ),
)
