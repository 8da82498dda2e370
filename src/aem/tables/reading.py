"""Tables from files: CSV, Parquet or .npy, matched to a model's columns by name where possible."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, parquet

from aem.base.checks import check_table
from aem.base.frames import column_numbers, is_number
from aem.base.names import listed, places, unnamed
from aem.errors import AemError

COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
TEXTS = (".csv", ".tsv")
KINDS = (*TEXTS, ".parquet", ".npy", *(text + packed for text in TEXTS for packed in COMPRESSED))


@dataclass(frozen=True)
class RawTable:
    """What a file holds: its columns by position, and their names where it has any.

    Parameters
    ----------
    columns
        the columns, by position.
    names
        their names, where the file has any.
    headless
        whether the first line of a text was taken as a row.
    """

    columns: list[pa.ChunkedArray]
    names: list[str] | None
    headless: bool = False


@dataclass(frozen=True)
class NamedRows:
    """Rows of finite numbers and the names of their columns.

    Parameters
    ----------
    names
        names of the columns.
    values
        the rows, float64 [B, D].
    headless
        whether the first line of a text was taken as a row although the columns have names.
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]
    headless: bool = (
        False  # the first line of a text was taken as a row, and its columns have names
    )


def read_rows(
    path: str | Path,
    *,
    wanted: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> NamedRows:
    """Read a table of finite numbers from a file.

    Whatever cannot be used is refused by name: a column too many or too few, text, missing values.

    Parameters
    ----------
    path
        a CSV, TSV (also compressed), Parquet or .npy file.
    wanted
        the columns of a model, matched by name and given in their order; without any, all columns.
    drop
        columns to leave out, which must be there.
    ignore
        columns to leave out if they are there.
    """
    return named_rows(read_raw(Path(path), wanted or ()), str(path), wanted, drop, ignore)


def named_rows(
    raw: RawTable,
    what: str,
    wanted: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> NamedRows:
    """Return the rows of what a file or a stream holds, or say what cannot be used.

    Parameters
    ----------
    raw
        what was read.
    what
        how errors call it.
    wanted, drop, ignore
        as for `read_rows`.
    """
    raw = _without(raw, drop, ignore, what)
    if not raw.columns:
        raise AemError(f"{what} has no columns{' left' if drop else ''}")
    columns = raw.columns
    names = tuple(raw.names or wanted or unnamed(len(columns)))
    if len(names) != len(columns):
        raise AemError(
            f"{what} has {len(columns)} columns without names, the model has {len(names)}"
        )
    if wanted is not None:
        chosen = places(names, wanted, what)
        names, columns = tuple(wanted), [columns[place] for place in chosen]
    if len(columns[0]) == 0:
        raise AemError(f"{what} has no rows")
    found = dict(zip(names, columns, strict=True))
    numbers = column_numbers(found, what, "leave such columns out with --drop")
    values = check_table(numbers, what=f"data in {what}", columns=names)
    headless = raw.headless and list(wanted or ()) != unnamed(len(names))
    return NamedRows(names, values, headless)


def kind_of(path: str | Path) -> str:
    """Return how the name of a table ends, in .csv or .csv.gz and the like.

    Parameters
    ----------
    path
        the file, which need not exist.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes[-2:]]
    return "".join(suffixes if suffixes and suffixes[-1] in COMPRESSED else suffixes[-1:])


def _check_readable(path: Path) -> None:
    """Refuse what is not a file, or not for this user to read."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise AemError(f"there is no file {path}") from error
    except OSError as error:
        raise AemError(f"{path} cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(status.st_mode):
        raise AemError(f"{path} is a folder, not a table")
    if not stat.S_ISREG(status.st_mode):
        raise AemError(f"{path} is not an ordinary file")
    if not os.access(path, os.R_OK):
        raise AemError(f"{path} is a file you may not read")


def read_raw(path: Path, known: Sequence[str] = ()) -> RawTable:
    """Read what a file holds, whatever it is, or say in one sentence why it cannot be read.

    A first line of numbers is a row, unless it has names of columns that are known.

    Parameters
    ----------
    path
        a file of one of the `KINDS`.
    known
        names of the columns of a model.
    """
    kind = kind_of(path)
    if kind not in KINDS:
        raise AemError(f"{path} is none of the kinds of table aem reads: {', '.join(KINDS)}")
    _check_readable(path)
    if path.stat().st_size == 0:
        raise AemError(f"{path} is empty")
    try:
        if kind == ".npy":
            return _from_numpy(path)
        if kind == ".parquet":
            table = parquet.ParquetFile(path).read()
            return RawTable(list(table.columns), list(table.column_names))
        return _from_csv(path, "\t" if kind.startswith(".tsv") else ",", known)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "it is damaged"
        raise AemError(f"{path} cannot be read as a {kind[1:]} table: {reason}") from error


def _from_numpy(path: Path) -> RawTable:
    array = np.load(path, allow_pickle=False)
    if array.dtype.names:
        fields = [pa.chunked_array([np.ascontiguousarray(array[n])]) for n in array.dtype.names]
        return RawTable(fields, list(array.dtype.names))
    if array.ndim != 2:
        raise AemError(f"{path} must hold rows and columns, not an array of shape {array.shape}")
    if array.dtype.kind not in "buif":
        raise AemError(f"{path} holds values of type {array.dtype}, not numbers")
    wide = np.asarray(array, dtype=np.float64)
    return RawTable([pa.chunked_array([np.ascontiguousarray(c)]) for c in wide.T], None)


def _from_csv(path: Path, delimiter: str, known: Sequence[str]) -> RawTable:
    parse = csv.ParseOptions(delimiter=delimiter)
    packing = COMPRESSED.get(path.suffix.lower())
    with (
        pa.input_stream(str(path), compression=packing) as stream,
        csv.open_csv(stream, parse_options=parse) as reader,
    ):
        first = list(reader.schema.names)
    named = not all(map(is_number, first)) or _are_names(first, known)
    # "0,1,2" is how a data frame without names is written: a header, but no names.
    headless = not named and first != [str(i) for i in range(len(first))]
    options = csv.ReadOptions(autogenerate_column_names=headless)
    with pa.input_stream(str(path), compression=packing) as stream:
        columns = csv.read_csv(stream, read_options=options, parse_options=parse).columns
    if headless:
        _refuse_doubtful(first, columns, path)
    return RawTable(list(columns), first if named else None, headless)


def _are_names(numbers: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether some of the numbers are known as names and none stands there twice."""
    return len(set(numbers)) == len(numbers) and not set(numbers).isdisjoint(known)


def _refuse_doubtful(first: Sequence[str], columns: list[pa.ChunkedArray], path: Path) -> None:
    """Refuse a first line that counts, as years do, above rows with fractions: it is hardly a row."""
    if len(first) < 3 or not all(map(str.isdecimal, first)):
        return
    start, end = int(first[0]), int(first[-1])
    counts = list(map(int, first)) == list(range(start, start + len(first)))
    if counts and any(pa.types.is_floating(column.type) for column in columns):
        raise AemError(
            f"the first line of {path} counts from {start} to {end} and may be a header or a row: "
            f"write names with a letter (y{start}), or numbers with a point ({start}.0)"
        )


def _without(raw: RawTable, drop: Sequence[str], ignore: Sequence[str], what: str) -> RawTable:
    names = raw.names or unnamed(len(raw.columns))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise AemError(f"{what} has more than one column {listed(twice)}")
    unknown = [name for name in drop if name not in names]
    if unknown:
        raise AemError(f"{what} has no column {listed(unknown)} to drop")
    kept = [(n, c) for n, c in zip(names, raw.columns, strict=True) if n not in {*drop, *ignore}]
    kept_names = [n for n, _ in kept] if raw.names else None
    return RawTable([c for _, c in kept], kept_names, raw.headless)
