"""Tables from files, matched to a model's columns by name where possible."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import feather, parquet

from aem.base.checks import check_table
from aem.base.frames import column_numbers, dtypes_of, row_labels
from aem.base.names import listed, places, unnamed
from aem.errors import AemError
from aem.tables.text import (
    TextTable,
    are_names,
    count_from_zero,
    delimiter_of,
    read_text,
)

COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
TEXTS = (".csv", ".tsv", ".txt")
BINARY = (".parquet", ".feather", ".npy")
KINDS = (
    *TEXTS,
    *BINARY,
    *(text + packed for text in TEXTS for packed in COMPRESSED),
)
# How files begin that say what they are.
MARKS = {
    b"PAR1": ".parquet",
    b"ARROW1": ".feather",
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".zip",
    b"\x1f\x8b": ".csv.gz",
    b"BZh": ".csv.bz2",
    b"\x28\xb5\x2f\xfd": ".csv.zst",
}
LONGEST_MARK = max(map(len, MARKS))


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
    labels
        names of the columns that were left out as row labels.
    remarks
        what else was assumed, as sentences about the file.
    """

    columns: list[pa.ChunkedArray]
    names: list[str] | None
    headless: bool = False
    labels: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


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
    remarks
        what was assumed, each a sentence for the user.
    dtypes
        types of columns of whole numbers, truth values and single precision, by name.
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]
    headless: bool = False
    remarks: tuple[str, ...] = ()
    dtypes: Mapping[str, str] = field(default_factory=dict)


def read_rows(
    path: str | Path,
    *,
    wanted: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    ignore: Sequence[str] = (),
    delimiter: str | None = None,
) -> NamedRows:
    """Read a table of finite numbers from a file.

    Whatever cannot be used is refused by name: a column too many or too few, text, missing values.

    Parameters
    ----------
    path
        a CSV, TSV or other delimited text (also compressed), a Parquet, Feather or .npy file.
    wanted
        the columns of a model, matched by name and given in their order; without any, all columns.
    drop
        columns to leave out, which must be there.
    ignore
        columns to leave out if they are there.
    delimiter
        what separates the fields of a text, as a character or by its name; found without any.
    """
    raw = read_raw(Path(path), wanted or (), delimiter=delimiter)
    return named_rows(raw, str(path), wanted, drop, ignore)


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
    if "" in names and "" not in (wanted or ()) and not _go_by_place(wanted or (), len(names)):
        after = f"after '{names[names.index('') - 1]}' " if names[0] else ""
        raise AemError(f"the column {after}of {what} has no name: give it one")
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
    remarks = _remarks(raw, names, what, headless=headless)
    return NamedRows(names, values, headless, remarks, dtypes_of(found))


def _go_by_place(known: Sequence[str], columns: int) -> bool:
    """Return whether a model knows no names, and as many columns as there are."""
    return len(known) == columns and list(known) == unnamed(columns)


def _remarks(raw: RawTable, names: Sequence[str], what: str, *, headless: bool) -> tuple[str, ...]:
    remarks = list(raw.remarks)
    if headless:
        taken = f"its first line was taken as a row, its columns as {listed(names)}"
        remarks.append(f"there is no header, so {taken}")
    if raw.labels:
        which = ", ".join(f"'{name}'" if name else "without a name" for name in raw.labels)
        columns = "column {} was" if len(raw.labels) == 1 else "columns {} were"
        remarks.append(f"its {columns.format(which)} taken for row labels and left out")
    return tuple(f"{what}: {remark}" for remark in remarks)


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


def read_raw(path: Path, known: Sequence[str] = (), *, delimiter: str | None = None) -> RawTable:
    """Read what a file holds, whatever it is, or say in one sentence why it cannot be read.

    Row labels are left out. A first line of numbers is a row, unless it has names of columns that
    are known.

    Parameters
    ----------
    path
        a file of one of the `KINDS`; some say in their first bytes what they are, whatever their name.
    known
        names of the columns of a model.
    delimiter
        what separates the fields of a text, as a character or by its name; found without any.
    """
    delimiter = None if delimiter is None else delimiter_of(delimiter)
    kind = kind_of(path)
    if kind not in KINDS:
        raise AemError(
            f"{path} is none of the kinds of table aem reads: {', '.join((*TEXTS, *BINARY))}; texts "
            f"may be compressed ({', '.join(COMPRESSED)})"
        )
    _check_readable(path)
    if path.stat().st_size == 0:
        raise AemError(f"{path} is empty")
    with path.open("rb") as file:
        marked = kind_of_content(file.read(LONGEST_MARK)) or kind
    if _packing(marked) is None or _packing(marked) != _packing(kind):
        kind = marked
    try:
        if kind == ".npy":
            return _from_numpy(path)
        if kind == ".parquet":
            return _from_arrow(parquet.ParquetFile(path).read(), known)
        if kind == ".feather":
            return _from_arrow(feather.read_table(path), known)
        usual = "\t" if kind.startswith(".tsv") else ","
        if kind == ".zip":
            raise AemError(f"{path} is a spreadsheet or a zip archive: save the table in it as CSV")
        return _from_text(read_text(path, _packing(kind), delimiter, usual, known), known)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        if isinstance(error, AemError):
            raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "it is damaged"
        raise AemError(f"{path} cannot be read as a {kind[1:]} table: {reason}") from error


def kind_of_content(first: bytes) -> str | None:
    """Return the kind of table that the first bytes of a file say it is, or None.

    Parameters
    ----------
    first
        as many bytes as `LONGEST_MARK`, if there are so many.
    """
    return next((kind for mark, kind in MARKS.items() if first.startswith(mark)), None)


def _packing(kind: str) -> str | None:
    return next((how for end, how in COMPRESSED.items() if kind.endswith(end)), None)


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


def _from_arrow(table: pa.Table, known: Sequence[str]) -> RawTable:
    """What pandas wrote says which of its columns are row labels."""
    written = (table.schema.pandas_metadata or {}).get("index_columns", ())
    index = [name for name in written if isinstance(name, str)]
    return _without_labels(RawTable(list(table.columns), list(table.column_names)), known, index)


def _from_text(text: TextTable, known: Sequence[str]) -> RawTable:
    headless = text.names is None
    raw = RawTable(text.columns, text.names, headless, remarks=text.remarks)
    raw = _without_labels(raw, known)
    if raw.names and count_from_zero(raw.names) and not are_names(raw.names, known):
        return replace(raw, names=None)
    return raw


def _without_labels(raw: RawTable, known: Sequence[str], index: Sequence[str] = ()) -> RawTable:
    """Leave row labels out, and columns of a text that have neither name nor values."""
    if raw.names is None or _go_by_place(known, len(raw.columns)):
        return raw
    labels = row_labels(raw.names, raw.columns, index)
    empty = [
        place
        for place, (name, column) in enumerate(zip(raw.names, raw.columns, strict=True))
        if not name and column.null_count == len(column)
    ]
    out = {place for place in (*labels, *empty) if raw.names[place] not in known}
    kept = [place for place in range(len(raw.names)) if place not in out]
    return replace(
        raw,
        columns=[raw.columns[place] for place in kept],
        names=[raw.names[place] for place in kept],
        labels=tuple(raw.names[place] for place in labels if place in out),
    )


def _without(raw: RawTable, drop: Sequence[str], ignore: Sequence[str], what: str) -> RawTable:
    names = raw.names or unnamed(len(raw.columns))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise AemError(f"{what} has more than one column {listed(twice)}")
    unknown = [name for name in drop if name not in names and name not in raw.labels]
    if unknown:
        raise AemError(f"{what} has no column {listed(unknown)} to drop")
    kept = [(n, c) for n, c in zip(names, raw.columns, strict=True) if n not in {*drop, *ignore}]
    kept_names = [n for n, _ in kept] if raw.names else None
    return replace(raw, columns=[c for _, c in kept], names=kept_names)
