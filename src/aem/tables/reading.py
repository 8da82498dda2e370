"""Tables from files: CSV, Parquet or .npy, matched to a model's columns by name where possible."""

import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, parquet

from aem.base.checks import check_table
from aem.errors import AemError

COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
TEXTS = (".csv", ".tsv")
KINDS = (*TEXTS, ".parquet", ".npy", *(text + packed for text in TEXTS for packed in COMPRESSED))


@dataclass(frozen=True)
class RawTable:
    """What a file holds: its columns by position, and their names where it has any."""

    columns: list[pa.ChunkedArray]
    names: list[str] | None
    headless: bool = False  # a text whose first line was taken as a row


def read_table(path: str | Path, columns: Sequence[str] = ()) -> NDArray[np.float64]:
    """Read [B, D] finite numbers, or say in one sentence what is wrong with the file.

    With `columns`, those are picked by name and in that order; the file's other columns are left
    alone. A file without names must have exactly that many columns.
    """
    path = Path(path)
    table = _pick(read_raw(path, columns), columns, path)
    names = table.names or list(columns) or [str(i) for i in range(len(table.columns))]
    if not table.columns or len(table.columns[0]) == 0:
        raise AemError(f"{path} has no rows")
    numbers = [column_numbers(c, n, path) for c, n in zip(table.columns, names, strict=True)]
    return check_table(np.stack(numbers, axis=1), columns=names, what=f"data in {path}")


def kind_of(path: str | Path) -> str:
    """How the name of a table ends, in .csv or .csv.gz and the like."""
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
    """What a file holds, whatever it is, or one sentence that says why it cannot be read.

    A first line of numbers is a row, unless it has names of columns that are known.
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
            return _from_arrow(parquet.ParquetFile(path).read())
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


def _from_arrow(table: pa.Table) -> RawTable:
    return RawTable(list(table.columns), list(table.column_names))


def _from_csv(path: Path, delimiter: str, known: Sequence[str]) -> RawTable:
    parse = csv.ParseOptions(delimiter=delimiter)
    packing = COMPRESSED.get(path.suffix.lower())
    with (
        pa.input_stream(str(path), compression=packing) as stream,
        csv.open_csv(stream, parse_options=parse) as reader,
    ):
        first = list(reader.schema.names)
    named = not all(map(_is_number, first)) or _are_names(first, known)
    # "0,1,2" is how a data frame without names is written: a header, but no names.
    headless = not named and first != [str(i) for i in range(len(first))]
    options = csv.ReadOptions(autogenerate_column_names=headless)
    with pa.input_stream(str(path), compression=packing) as stream:
        columns = csv.read_csv(stream, read_options=options, parse_options=parse).columns
    if headless:
        _refuse_doubtful(first, columns, path)
    return RawTable(list(columns), first if named else None, headless)


def _are_names(numbers: Sequence[str], known: Sequence[str]) -> bool:
    """Whether some are known as names, and none stands there twice, as only values may."""
    return len(set(numbers)) == len(numbers) and not set(numbers).isdisjoint(known)


def _refuse_doubtful(first: Sequence[str], columns: list[pa.ChunkedArray], path: Path) -> None:
    """A line that counts, as years do, above rows with fractions is hardly a row itself."""
    if len(first) < 3 or not all(map(str.isdecimal, first)):
        return
    start, end = int(first[0]), int(first[-1])
    counts = list(map(int, first)) == list(range(start, start + len(first)))
    if counts and any(pa.types.is_floating(column.type) for column in columns):
        raise AemError(
            f"the first line of {path} counts from {start} to {end}, as names might: if it has "
            f"names, put a letter into them (y{start}), if it is a row, a point ({start}.0)"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _pick(table: RawTable, columns: Sequence[str], path: Path) -> RawTable:
    if table.names is not None:
        twice = [name for name, count in Counter(table.names).items() if count > 1]
        if twice:
            raise AemError(f"{path} has more than one column '{twice[0]}'")
    if not columns:
        return table
    if table.names is not None and set(columns) <= set(table.names):
        return RawTable([table.columns[table.names.index(c)] for c in columns], list(columns))
    # A model fitted on an array calls its columns x1, x2, …: those names mean positions.
    positional = list(columns) == [f"x{i + 1}" for i in range(len(columns))]
    if table.names is not None and not (positional and len(table.columns) == len(columns)):
        missing = next(c for c in columns if c not in table.names)
        listed = ", ".join(table.names[:8]) + (", …" if len(table.names) > 8 else "")
        raise AemError(f"{path} has no column '{missing}', which the model needs; it has {listed}")
    if len(table.columns) != len(columns):
        raise AemError(
            f"{path} has {len(table.columns)} columns without names, the model has {len(columns)}"
        )
    return RawTable(table.columns, table.names)


def is_numeric(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers, as one of nothing but gaps may."""
    types = pa.types
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(numbers or types.is_boolean(kind) or types.is_null(kind))


def column_numbers(column: pa.ChunkedArray, name: str, path: Path | str) -> NDArray[np.float64]:
    """A column as float64, or one sentence that says why it is none."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_null(kind):
        raise AemError(f"column '{name}' of {path} has no values")
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise AemError(f"column '{name}' of {path} is not numeric{_first_text(column)}")
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _first_text(column: pa.ChunkedArray) -> str:
    """Where the trouble starts: usually one stray word in a column of numbers."""
    for row, value in enumerate(column):
        if value.is_valid and not _is_number(str(value)):
            return f": row {row} holds '{value}'"
    return ""
