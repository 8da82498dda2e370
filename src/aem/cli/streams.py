"""Tables that commands read and write: by file extension, or `-` for standard input and output."""

import io
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from aem.base.console import STANDARD, write
from aem.base.files import finite
from aem.base.names import listed
from aem.errors import AemError
from aem.tables.reading import NamedRows, RawTable, named_rows, read_raw


def read_input(
    source: str,
    *,
    wanted: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> NamedRows:
    """Read a table from a file or from standard input, as `aem.tables.reading.read_rows` does.

    Parameters
    ----------
    source
        the file's name, or `STANDARD`.
    wanted
        the columns of a model, matched by name and given in their order; without any, all columns.
    drop
        columns to leave out, which must be there.
    ignore
        columns to leave out if they are there.
    """
    what = "standard input" if source == STANDARD else source
    rows = named_rows(_read(source, wanted or ()), what, wanted, drop, ignore)
    if rows.headless:
        notice = f"{what} has no header: its first line was taken as a row, its columns as"
        print(f"aem: {notice} {listed(rows.names)}", file=sys.stderr)
    return rows


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


def write_columns(out: str, columns: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Write a table, completely or not at all.

    Parameters
    ----------
    out
        the file, whose extension decides the kind, or `STANDARD`.
    columns
        values by name, equally many of each.
    as_json
        whether standard output gets JSON rather than CSV.
    """
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
