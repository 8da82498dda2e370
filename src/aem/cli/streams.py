"""Tables that commands read and write: by file extension, or `-` for standard input and output."""

import io
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from aem.base.console import STANDARD, detail, is_quiet, remark, say, write
from aem.base.files import finite
from aem.errors import AemError
from aem.tables.reading import NamedRows, RawTable, named_rows, read_raw

IN_PLACE = ", in place of an earlier file"


def read_input(
    source: str,
    *,
    wanted: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    ignore: Sequence[str] = (),
    delimiter: str | None = None,
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
    delimiter
        what separates the fields of a text; found without any.
    """
    what = "standard input" if source == STANDARD else source
    raw = _read(source, wanted or (), delimiter)
    rows = named_rows(raw, what, wanted, drop, ignore)
    remark(*rows.remarks)
    count, width = rows.values.shape
    detail(f"{what}: read {count:,} rows × {width:,} columns")
    return rows


def _read(source: str, known: Sequence[str], delimiter: str | None) -> RawTable:
    if source != STANDARD:
        return read_raw(Path(source), known, delimiter=delimiter)
    content = sys.stdin.buffer.read()
    with tempfile.TemporaryDirectory() as folder:
        # Everything but a text says in its first bytes what it is.
        copy = Path(folder) / "standard input.csv"
        copy.write_bytes(content)
        try:
            return read_raw(copy, known, delimiter=delimiter)
        except AemError as error:
            raise AemError(str(error).replace(str(copy), "standard input")) from error


def write_columns(out: str, columns: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Write a table, completely or not at all, and say where.

    Parameters
    ----------
    out
        the file, whose extension decides the kind, or `STANDARD`.
    columns
        values by name, equally many of each.
    as_json
        whether standard output gets JSON only, rather than CSV or a sentence.
    """
    if out == STANDARD:
        write(out, _encoded(columns, ".json" if as_json else ".csv"))
        return
    before = os.path.exists(out)
    write(out, _encoded(columns, Path(out).suffix.lower()))
    if not as_json and not is_quiet():
        count = len(next(iter(columns.values())))
        say(f"Wrote {count:,} rows to {out}{IN_PLACE if before else ''}.")


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
