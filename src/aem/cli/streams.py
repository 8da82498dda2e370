"""What commands read and write: tables by extension, `-` for standard streams, JSON, sentences."""

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

from aem.base.checks import check_table
from aem.base.console import STANDARD, write
from aem.base.files import finite
from aem.base.names import listed, match_names
from aem.errors import AemError
from aem.tables.reading import RawTable, column_numbers, is_numeric, read_raw


@dataclass(frozen=True)
class NamedRows:
    """Rows of finite numbers and the names of their columns."""

    names: tuple[str, ...]
    values: NDArray[np.float64]
    headless: bool = False  # the first line of a text was taken as a row


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
    raw = _without(_read(source, wanted or ()), drop, ignore, what)
    if not raw.columns:
        raise AemError(f"{what} has no columns{' left' if drop else ''}")
    positions = tuple(f"x{i + 1}" for i in range(len(raw.columns)))
    # A model of columns without names takes those of a file by position.
    nameless = tuple(wanted or ()) == positions and set(raw.names or ()) != set(positions)
    if raw.names is None or nameless:
        names = positions
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
    if len(raw.columns[0]) == 0:
        raise AemError(f"{what} has no rows")
    _refuse_text_and_gaps(columns, what)
    numbers = [column_numbers(columns[name], name, what) for name in names]
    values = check_table(np.stack(numbers, axis=1), columns=names, what=f"data in {what}")
    if raw.headless and tuple(wanted or ()) != positions:
        _tell_headless(names, what)
    return NamedRows(names, values, raw.headless)


def _tell_headless(names: Sequence[str], what: str) -> None:
    notice = f"{what} has no header: its first line was taken as a row, its columns as"
    print(f"aem: {notice} {listed(names)}", file=sys.stderr)


def _read(source: str, known: Sequence[str]) -> RawTable:
    if source != STANDARD:
        return read_raw(Path(source), known)
    content = sys.stdin.buffer.read()
    # Parquet and gzip say so in their first bytes; everything else is read as CSV.
    kinds = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz"}
    kind = next((k for first, k in kinds.items() if content.startswith(first)), ".csv")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"standard input{kind}"
        copy.write_bytes(content)
        try:
            return read_raw(copy, known)
        except AemError as error:
            raise AemError(str(error).replace(str(copy), "standard input")) from error


def _without(raw: RawTable, drop: Sequence[str], ignore: Sequence[str], what: str) -> RawTable:
    names = raw.names or [f"x{i + 1}" for i in range(len(raw.columns))]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise AemError(f"{what} has more than one column {listed(twice)}")
    unknown = [name for name in drop if name not in names]
    if unknown:
        raise AemError(f"{what} has no column {listed(unknown)} to drop")
    kept = [(n, c) for n, c in zip(names, raw.columns, strict=True) if n not in {*drop, *ignore}]
    kept_names = [n for n, _ in kept] if raw.names else None
    return RawTable([c for _, c in kept], kept_names, raw.headless)


def _refuse_text_and_gaps(columns: Mapping[str, pa.ChunkedArray], what: str) -> None:
    """Say which columns cannot be used, all at once."""
    text = [n for n, c in columns.items() if not is_numeric(c.type)]
    if len(text) > 1:
        raise AemError(
            f"columns {listed(text)} of {what} are not numeric: categories and text are not "
            "supported yet, leave them out with --drop or encode them"
        )
    gaps = [n for n, c in columns.items() if not pa.types.is_null(c.type) and c.null_count]
    empty = [n for n, c in columns.items() if len(c) and c.null_count == len(c)]
    if empty:
        raise AemError(f"column {listed(empty)} of {what} has no values; leave it out with --drop")
    if gaps and not text:
        raise AemError(
            f"column {listed(gaps)} of {what} has missing values, which are not supported yet: "
            "fill them in or leave those rows or columns out"
        )


def write_columns(out: str, columns: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Write a table whole or not at all; to standard output as CSV, or as JSON if asked to."""
    kind = Path(out).suffix.lower() if out != STANDARD else ".json" if as_json else ".csv"
    write(out, _encoded(columns, kind))


def _encoded(columns: Mapping[str, Any], kind: str) -> bytes:
    if kind == ".json":
        plain = {name: np.asarray(values).tolist() for name, values in columns.items()}
        rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
        return (json.dumps(finite(rows), indent=1, allow_nan=False) + "\n").encode()
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    buffer = io.BytesIO()
    if kind == ".parquet":
        parquet.write_table(table, buffer)
    else:
        delimiter = "\t" if kind == ".tsv" else ","
        options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
        csv.write_csv(table, buffer, options)
    return buffer.getvalue()
