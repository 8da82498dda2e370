"""POWER: minute by minute, the electricity one household used over four years.

Two facts decide what a density of it can reach. Active power is recorded in steps of 0.002 while
the noise added to it is only 0.001 wide, so its density is a comb of half-filled teeth. And time is
a whole number of minutes without noise, so in MAF's recipe (`power-maf`) its density has no bound;
`power` adds a uniform part of a minute, which can only lower the score.
"""

import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv

from aem.data.info import DataFile, DatasetInfo, Download, Source, SplitSizes
from aem.data.readers import read_array, refusing
from aem.data.sets.maf import maf_sources
from aem.data.sets.recipes import hold_out, split_three, standardise
from aem.data.splits import Floats, TableSplits
from aem.errors import AemError

COLUMNS: Final = (
    "active_power",
    "voltage",
    "sub_metering_1",
    "sub_metering_2",
    "sub_metering_3",
    "minute_of_day",
)

_MEASUREMENTS: Final = (
    "Global_active_power",
    "Global_reactive_power",
    "Voltage",
    "Global_intensity",
    "Sub_metering_1",
    "Sub_metering_2",
    "Sub_metering_3",
)
_KEPT: Final = [0, 2, 4, 5, 6, 7]  # reactive power and intensity are dropped
_MEMBER: Final = "household_power_consumption.txt"
_SEED: Final = 42


def read_zip(path: Path) -> Floats:
    """Read UCI's zip file into the complete rows of seven measurements and the minute of the day.

    Rows keep the order of time.
    """
    with (
        refusing(path, f"a zip file of {_MEMBER}"),
        zipfile.ZipFile(path) as archive,
        archive.open(_MEMBER) as file,
    ):
        return _parse(file)


def read_text(path: Path) -> Floats:
    """Read UCI's text file, as `read_zip` does."""
    with refusing(path, f"UCI's {_MEMBER}"), path.open("rb") as file:
        return _parse(file)


def read_npy(path: Path) -> Floats:
    """Read MAF's data.npy, which holds the same eight columns."""
    return np.asarray(read_array(path), dtype=np.float64)


def prepare(raw: Floats, name: str = "power", *, part_of_minute: bool = True) -> TableSplits:
    """Turn raw rows into splits by MAF's recipe, in the order of its random draws.

    Parameters
    ----------
    raw
        eight columns: seven measurements and the minute of the day.
    name
        name of the data set.
    part_of_minute
        whether noise is added to the minutes, which are whole numbers, as to the other columns.
    """
    width = len(_MEASUREMENTS) + 1
    if raw.ndim != 2 or raw.shape[1] != width:
        raise AemError(f"{name} expects rows of {width} columns, found an array of {raw.shape}")
    n = len(raw)
    rng = np.random.RandomState(_SEED)  # an old generator, but the published rows hang on it
    rows = raw[rng.permutation(n)][:, _KEPT]  # draws and orders exactly as shuffle does
    # Reactive power and intensity would have had their turn here; MAF drew no noise for them.
    rows[:, 1] += 0.01 * rng.rand(n)
    rows[:, 0] += 0.001 * rng.rand(n)
    rows[:, 2:5] += rng.rand(n, 3)
    if part_of_minute:  # drawn last, so that all other columns agree with power-maf
        rows[:, 5] += rng.rand(n)
    known, _test = hold_out(rows)
    splits = TableSplits.of(name, split_three(standardise(rows, known)), COLUMNS)
    if part_of_minute:
        return splits
    minute = 1 / float(known[:, 5].std())
    return replace(splits, steps=(0.0,) * (len(COLUMNS) - 1) + (minute,))


def _parse(file: IO[bytes]) -> Floats:
    number, time = pa.float64(), pa.time32("s")
    table = pyarrow.csv.read_csv(
        file,
        parse_options=pyarrow.csv.ParseOptions(delimiter=";"),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={"Time": time} | dict.fromkeys(_MEASUREMENTS, number),
            null_values=["?", ""],
            include_columns=[*_MEASUREMENTS, "Time"],
        ),
    ).drop_null()
    seconds = table["Time"].cast(pa.int32()).to_numpy()
    measured = [table[name].to_numpy() for name in _MEASUREMENTS]
    return np.column_stack([*measured, seconds // 60])


def _sources(name: str, part_of_minute: bool) -> tuple[Source, ...]:
    finish = partial(prepare, name=name, part_of_minute=part_of_minute)
    archive = DataFile(
        "power/household_power_consumption.zip",
        sha256="9f84b46ade8a2d8e1286ec4b2b6c2987a45a755c59f263be3b3b3d10dfbda3ff",
        size=20_640_916,
    )
    download = Download(
        "https://archive.ics.uci.edu/static/public/235/"
        "individual+household+electric+power+consumption.zip",
        hash=f"sha256:{archive.sha256}",
        path=archive.path,
    )
    return (
        Source((archive,), lambda path: finish(read_zip(path)), (download,)),
        Source((DataFile(f"power/{_MEMBER}"),), lambda path: finish(read_text(path))),
        *maf_sources(lambda path: finish(read_npy(path)), "power/data.npy"),
    )


def _info(name: str, description: str, part_of_minute: bool) -> DatasetInfo:
    return DatasetInfo(
        name=name,
        description=description,
        rows=SplitSizes(1_659_917, 184_435, 204_928),
        columns=len(COLUMNS),
        licence="CC BY 4.0",
        url="https://archive.ics.uci.edu/dataset/235",
        sources=_sources(name, part_of_minute),
    )


DATASETS: Final = (
    _info("power", "Household electricity, a part of a minute added to time", True),
    _info("power-maf", "Household electricity, MAF's recipe to the letter", False),
)
