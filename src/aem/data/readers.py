"""Readers of arrays and tables, with one-sentence errors for damaged files."""

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.lib.format import MAGIC_PREFIX

from aem.data.splits import Floats
from aem.errors import AemError
from aem.extras import require

_BROKEN: Final = (
    *(ValueError, KeyError),  # NumPy, pandas, Arrow
    *(OSError, EOFError, zlib.error, zipfile.BadZipFile),  # the disk, gzip, zip, HDF5
    SyntaxError,  # Pillow
)


@contextmanager
def refusing(path: Path, kind: str) -> Iterator[None]:
    """Turn errors of reading a damaged file into one sentence that names it.

    Parameters
    ----------
    path
        the file that is read.
    kind
        what it should be, with its article: "a picture".
    """
    try:
        yield
    except FileNotFoundError as error:
        raise AemError(f"there is no file at {path}") from error
    except _BROKEN as error:
        raise AemError(f"{path} is not {kind}, or is damaged: {_first_line(error)}") from error


def read_array(path: Path) -> npt.NDArray[Any]:
    """Read one array from an .npy file; pickled objects are refused."""
    with refusing(path, "an .npy file of numbers"), path.open("rb") as file:
        if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            raise ValueError(_foreign(path))
        file.seek(0)
        return _numbers(np.lib.format.read_array(file, allow_pickle=False))


def read_arrays(
    path: Path, names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, npt.NDArray[Any]]:
    """Read the named arrays from an .npz file, the optional ones if they are in it.

    Pickled objects are refused.

    Parameters
    ----------
    path
        the .npz file.
    names
        arrays that must be in it.
    optional
        arrays that are read if they are in it.
    """
    with (
        refusing(path, f"an .npz file with the arrays {', '.join(names)}"),
        zipfile.ZipFile(path),  # np.load would take a lone .npy for an archive
        np.load(path, allow_pickle=False) as archive,
    ):
        there = (name for name in optional if name in archive)
        return {name: _numbers(archive[name]) for name in (*names, *there)}


def read_numbers(
    path: Path, *, separator: str, columns: range, max_rows: int | None = None
) -> Floats:
    """Read a text table of numbers below one line of heading, gzipped or not.

    Parameters
    ----------
    path
        the text file, or its .gz.
    separator
        what stands between numbers, as a regular expression.
    columns
        how many numbers a row may have; every row must have as many as the first.
    max_rows
        how many rows to read, at most; None for all.
    """
    pandas = require("pandas", "reading a table of text", "data")
    with refusing(path, f"a table of {_span(columns)} columns of numbers"):
        frame = pandas.read_csv(
            path, sep=separator, header=None, skiprows=1, nrows=max_rows, dtype=np.float64,
            float_precision="round_trip",  # the default of older versions is wrong in the last digit
        )  # fmt: skip
    if frame.shape[1] not in columns:
        raise AemError(f"{path} has {frame.shape[1]} columns, expected {_span(columns)}")
    rows: Floats = frame.to_numpy()
    incomplete = np.flatnonzero(np.isnan(rows).any(axis=1))
    if len(incomplete):
        raise AemError(f"{path} has an incomplete row, the first in line {incomplete[0] + 2}")
    return rows


def _foreign(path: Path) -> str:
    """Say what stands in the place of an .npy file."""
    if zipfile.is_zipfile(path):
        return "it is a zip archive, which has to be unpacked first"
    if tarfile.is_tarfile(path):
        return "it is a tar archive, which has to be unpacked first"
    return "it does not begin as such a file does"


def _numbers(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    real = np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating)
    if not real:
        raise ValueError(f"it holds {array.dtype} where numbers were expected")
    return array


def _span(columns: range) -> str:
    return " or ".join(map(str, columns))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
