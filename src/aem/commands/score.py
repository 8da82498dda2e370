"""`aem score`: log densities of rows, and why they are what they are."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from aem.commands.progress import Progress
from aem.commands.streams import STANDARD, check_output, read_rows, write_columns
from aem.explain import as_columns, explain
from aem.tablemodel import TableModel
from aem.training.loop import choose_device

EPILOG = """
Examples:

  aem score wine.model wine.csv > scores.csv

  aem score wine.model new.parquet --explain --out why.parquet

  cat new.csv | aem score wine.model - --json
"""


def score(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    data: Annotated[str, typer.Argument(help="CSV, TSV, Parquet or .npy; - for standard input.")],
    explained: Annotated[
        bool, typer.Option("--explain", help="Say which columns make each row unlikely.")
    ] = False,
    top: Annotated[int, typer.Option(help="Columns to explain in each row.", min=1)] = 3,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="A column the model does not know; may be given several times."),
    ] = None,
    out: Annotated[
        str, typer.Option(help="A .csv, .tsv, .parquet or .json file; - for standard output.")
    ] = STANDARD,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON: the rows, or a summary if they go to a file."),
    ] = False,
) -> None:
    """Log density of each row, in the units of the data: the lower, the odder.

    Columns are matched by name, in any order. With --explain there is one line for each of the most
    surprising columns of each row: its log density given the columns before it, its surprise (how
    many nats that is below the average there), and what would have been likely: the median and the
    90 % highest-density region.
    """
    check_output(out)
    table = TableModel.load(model, choose_device(device))
    known = [name for name in table.about.get("dropped", ()) if name not in (drop or ())]
    rows = read_rows(data, wanted=table.columns, drop=drop or (), ignore=known)
    with Progress() as progress:
        if explained:
            explanation = explain(table, rows.values, progress)
            total = explanation.scores.total
            labels = range(len(total))
            columns = dict(as_columns(table, rows.values, explanation, top, labels))
        else:
            total = table.score(rows.values, progress).total
            columns = {"row": list(range(len(total))), "log_density": total.tolist()}
    write_columns(out, columns, as_json=as_json)
    if as_json and out != STANDARD:
        summary = {
            "model": str(model),
            "rows": len(total),
            "mean_log_density": float(total.mean()),
            "median_log_density": float(np.median(total)),
            "lowest_log_density": float(total.min()),
            "lowest_row": int(total.argmin()),
            "out": out,
        }
        typer.echo(json.dumps(summary, indent=2, allow_nan=False))
