"""`aem report`: one page about a model and a table."""

import os
from pathlib import Path
from typing import Annotated

import typer

from aem.base.console import STANDARD, as_json_text, is_quiet, say, write
from aem.base.display import ProgressDisplay
from aem.base.options import Delimiter, Device, Drop, Model, Table, seed_option
from aem.cli.places import check_place, left_out_of, load_table_model
from aem.cli.streams import IN_PLACE, read_input
from aem.errors import AemError
from aem.report import Limits, build, render

KINDS = (".html", ".htm")

EPILOG = """
Examples:

  aem report wine.aem wine.csv --out report.html

  aem report sensors.aem today.parquet --rows 5000 --out today.html

  cat new.csv | aem report wine.aem - --out - > report.html
"""


def report(
    model: Model,
    data: Table,
    out: Annotated[str, typer.Option(help="An .html file; - for standard output.")],
    rows: Annotated[
        int | None,
        typer.Option(help="Rows to score exactly, at random.", show_default="chosen", min=2),
    ] = None,
    drop: Drop = None,
    delimiter: Delimiter = None,
    seed: Annotated[int, seed_option("Seed of the samples and of the choice of rows.")] = 0,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the page's main numbers as JSON.")
    ] = False,
) -> None:
    """Write an HTML page about a model and a table, which works offline.

    The page shows the training curves, columns and pairs of columns beside samples, the calibration
    of each column, the most surprising rows and columns, the error of the scores, and how the model
    was made. Of a large table a random part is scored, and the page says how much. To judge a model,
    use rows that it was not fitted on.
    """
    _check(out, as_json, model, data)
    table = load_table_model(model, device)
    dropped, known = left_out_of(table, drop)
    found = read_input(data, wanted=table.columns, drop=dropped, ignore=known, delimiter=delimiter)
    name = "standard input" if data == STANDARD else Path(data).name
    limits = Limits.for_table(len(found.values), len(table.columns), rows)
    with ProgressDisplay() as progress:
        made = build(
            table,
            found.values,
            path=model,
            data=name,
            limits=limits,
            seed=seed,
            report=progress,
        )
    metrics = as_json_text({"model": str(model), "data": data, "out": out, **made.metrics})
    before = out != STANDARD and os.path.exists(out)
    write(out, render(made.record).encode())
    if as_json:
        say(metrics)
    elif out != STANDARD and not is_quiet():
        say(*made.record["summary"], f"The report is {out}{IN_PLACE if before else ''}.")


def _check(out: str, as_json: bool, model: Path, data: str) -> None:
    """Refuse what could not be written before the work begins."""
    if out == STANDARD:
        if as_json:
            raise AemError("the page and --json cannot both go to standard output")
        return
    if Path(out).suffix.lower() not in KINDS:
        raise AemError(f"{out} is not the name of a page: {' or '.join(KINDS)}")
    check_place(Path(out), model, data)
