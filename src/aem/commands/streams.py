"""Tables as commands read and write them: CSV or Parquet by extension, `-` for standard streams."""

import io
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, parquet

from aem.errors import AemError
from aem.frames import match_names
from aem.io import write_atomically
from aem.table import check_table
from aem.tablefile import RawTable, column_numbers, is_numeric, read_raw

WRITTEN = (".csv", ".tsv", ".parquet", ".json")
STANDARD = "-"


@dataclass(frozen=True)
class NamedRows:
    """Rows of finite numbers and the names of their columns."""

    names: tuple[str, ...]
    values: NDArray[np.float64]


def read_rows(
    source: str,
    *,
    wanted: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> NamedRows:
    """Read a table, all of it but the dropped columns, or in the order of the wanted ones.

    Whatever cannot be used is refused by name: a column too many or too few, text, missing values.
    A column to drop must be there, one to ignore need not.
    """
    what = "standard input" if source == STANDARD else source
    raw = _without(_read(source), drop, ignore, what)
    if raw.names is None:
        names = tuple(f"x{i + 1}" for i in range(len(raw.columns)))
        if wanted is not None and len(wanted) != len(names):
            raise AemError(
                f"{what} has {len(names)} columns without names, the model has {len(wanted)}"
            )
        names = names if wanted is None else tuple(wanted)
        columns = dict(zip(names, raw.columns, strict=True))
    else:
        columns = dict(zip(raw.names, raw.columns, strict=True))
        if wanted is not None:
            match_names(raw.names, wanted, what)
        names = tuple(raw.names if wanted is None else wanted)
    if not columns or len(raw.columns[0]) == 0:
        raise AemError(f"{what} has no rows")
    _refuse_text_and_gaps(columns, what)
    numbers = [column_numbers(columns[name], name, what) for name in names]
    values = check_table(np.stack(numbers, axis=1), columns=names, what=f"data in {what}")
    return NamedRows(names, values)


def _read(source: str) -> RawTable:
    if source != STANDARD:
        return read_raw(Path(source))
    content = sys.stdin.buffer.read()
    # A Parquet file says so in its first bytes; everything else is read as CSV.
    kind = ".parquet" if content[:4] == b"PAR1" else ".csv"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"standard input{kind}"
        copy.write_bytes(content)
        try:
            return read_raw(copy)
        except AemError as error:
            raise AemError(str(error).replace(str(copy), "standard input")) from error


def _without(raw: RawTable, drop: Sequence[str], ignore: Sequence[str], what: str) -> RawTable:
    names = raw.names or [f"x{i + 1}" for i in range(len(raw.columns))]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise AemError(f"{what} has more than one column {_listed(twice)}")
    unknown = [name for name in drop if name not in names]
    if unknown:
        raise AemError(f"{what} has no column {_listed(unknown)} to drop")
    kept = [(n, c) for n, c in zip(names, raw.columns, strict=True) if n not in {*drop, *ignore}]
    return RawTable([c for _, c in kept], [n for n, _ in kept] if raw.names else None)


def _refuse_text_and_gaps(columns: Mapping[str, pa.ChunkedArray], what: str) -> None:
    """Say which columns cannot be used, all at once."""
    text = [n for n, c in columns.items() if not is_numeric(c.type)]
    if len(text) > 1:
        raise AemError(
            f"columns {_listed(text)} of {what} are not numeric: categories and text are not "
            "supported yet, leave them out with --drop or encode them"
        )
    gaps = [n for n, c in columns.items() if not pa.types.is_null(c.type) and c.null_count]
    empty = [n for n, c in columns.items() if len(c) and c.null_count == len(c)]
    if empty:
        raise AemError(f"column {_listed(empty)} of {what} has no values; leave it out with --drop")
    if gaps and not text:
        raise AemError(
            f"column {_listed(gaps)} of {what} has missing values, which are not supported yet: "
            "fill them in or leave those rows or columns out"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:8]) + (", …" if len(names) > 8 else "")


def check_output(out: str) -> None:
    """Refuse a name nothing can be written to before the work begins."""
    if out != STANDARD and Path(out).suffix.lower() not in WRITTEN:
        raise AemError(f"{out} is none of the kinds of table aem writes: {', '.join(WRITTEN)}")
    if out != STANDARD:
        check_place(Path(out))


def check_place(path: Path) -> None:
    """Refuse a place where no file can be, without making anything yet."""
    if path.is_dir():
        raise AemError(f"{path} is a folder, not a file to write to")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise AemError(f"cannot write {path}: {above} is a file, not a folder")


def write_columns(out: str, columns: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Write a table whole or not at all; to standard output as CSV, or as JSON if asked to."""
    kind = Path(out).suffix.lower() if out != STANDARD else ".json" if as_json else ".csv"
    content = _encoded(columns, kind)
    if out == STANDARD:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        write_atomically(Path(out), content)


def _encoded(columns: Mapping[str, Any], kind: str) -> bytes:
    if kind == ".json":
        plain = {name: np.asarray(values).tolist() for name, values in columns.items()}
        rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
        return (json.dumps(rows, indent=1) + "\n").encode()
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    buffer = io.BytesIO()
    if kind == ".parquet":
        parquet.write_table(table, buffer)
    else:
        delimiter = "\t" if kind == ".tsv" else ","
        options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
        csv.write_csv(table, buffer, options)
    return buffer.getvalue()
