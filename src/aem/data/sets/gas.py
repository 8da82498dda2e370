"""GAS: readings of sixteen chemical sensors in mixtures of ethylene and carbon monoxide.

MAF's archive holds it as a pickle, which can run code when it is read, so it is not read here: the
raw text is. MAF kept a quarter of its rows, drawn without a seed, so the rows of `gas` are another
such quarter: of the same sizes and from the same source, but not the same rows.
"""

from pathlib import Path
from typing import Final

import numpy as np

from aem.data.info import DataFile, DatasetInfo, Download, Source, SplitSizes
from aem.data.readers import read_arrays, read_numbers
from aem.data.sets.recipes import split_three, standardise
from aem.data.splits import Floats, TableSplits
from aem.errors import AemError

_LEADING: Final = 3  # time and the two concentrations
_SENSORS: Final = 16
_LIMIT: Final = 0.98
_SEED: Final = 42


def read_text(path: Path) -> Floats:
    """Read the sensors' columns of UCI's ethylene_CO.txt."""
    width = _LEADING + _SENSORS
    return read_numbers(path, separator=r"\s+", columns=range(width, width + 1))[:, _LEADING:]


def prepare(readings: Floats) -> TableSplits:
    """Draw a quarter of the rows, drop correlated sensors, standardise and split.

    Parameters
    ----------
    readings
        readings of the sixteen sensors, in the order of time.
    """
    quarter = round(len(readings) / 4)
    rows = readings[np.random.default_rng(_SEED).permutation(len(readings))[:quarter]]
    kept = uncorrelated(rows)
    rows = rows[:, kept]
    splits = split_three(standardise(rows, rows, ddof=1))
    return TableSplits.of("gas", splits, tuple(f"sensor_{i + 1}" for i in kept))


def uncorrelated(rows: Floats) -> list[int]:
    """Drop the first column that another one follows closely, until there is none such."""
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant column: no correlation
        close = np.atleast_2d(np.corrcoef(rows, rowvar=False) > _LIMIT)
    np.fill_diagonal(close, False)
    kept = list(range(rows.shape[1]))
    while len(followed := np.flatnonzero(close[np.ix_(kept, kept)].any(axis=1))):
        del kept[followed[0]]
    return kept


def read_subset(path: Path) -> TableSplits:
    """Read gas-10k, which was drawn, split and standardised before."""
    splits = read_arrays(path, ("train", "valid", "test"))
    if any(split.ndim != 2 for split in splits.values()):
        raise AemError(f"{path} holds arrays that are no tables")
    columns = tuple(f"x{i}" for i in range(splits["train"].shape[1]))
    return TableSplits.of("gas-10k", (splits["train"], splits["valid"], splits["test"]), columns)


_TEXT: Final = "gas/ethylene_CO.txt"
_ARCHIVE: Final = Download(
    "https://archive.ics.uci.edu/static/public/322/gas+sensor+array+under+dynamic+gas+mixtures.zip",
    hash="sha1:12dd9c43e621d56b53f2f8894dddd6e410283d47",
    path="archives/gas-sensor-array-under-dynamic-gas-mixtures.zip",
    unpack=(("ethylene_CO.txt", _TEXT),),
)
_SUBSET: Final = DataFile(
    "gas/gas_subset.npz",
    sha256="780a7555d8a683a6ae74c031d5b433e070be4b007123e346335278bd0d89b2fb",
    size=707_462,
)

DATASETS: Final = (
    DatasetInfo(
        name="gas",
        description="Gas sensors in ethylene and CO, a quarter of the rows drawn anew",
        rows=SplitSizes(852_174, 94_685, 105_206),
        columns=8,
        licence="CC BY 4.0",
        url="https://archive.ics.uci.edu/dataset/322",
        sources=(Source((DataFile(_TEXT),), lambda path: prepare(read_text(path)), (_ARCHIVE,)),),
    ),
    DatasetInfo(
        name="gas-10k",
        description="Gas sensors, a small random subset",
        rows=SplitSizes(10_000, 10_000, 10_000),
        columns=8,
        licence="CC BY 4.0",
        url="https://archive.ics.uci.edu/dataset/322",
        sources=(Source((_SUBSET,), read_subset),),
        by_hand=f"it is not published, put a copy at {_SUBSET.path}",
    ),
)
