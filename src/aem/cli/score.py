"""`aem score`: log densities of rows, and which columns explain them."""

from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from aem.base.console import STANDARD, as_json_text, say
from aem.base.display import ProgressDisplay
from aem.base.options import Delimiter, Device, Drop, Model, RowsAsJson, Table, TableOut
from aem.cli.places import check_output, left_out_of, load_any_model
from aem.cli.streams import read_input, write_columns
from aem.errors import AemError
from aem.tables.model import TableModel
from aem.tables.queries.explain import as_columns, explain

EPILOG = """
Examples:

  aem score wine.aem wine.csv > scores.csv

  aem score wine.aem new.parquet --explain --out why.parquet

  cat new.csv | aem score wine.aem - --json
"""


def score(
    model: Model,
    data: Table,
    explained: Annotated[
        bool, typer.Option("--explain", help="Say which columns make each row unlikely.")
    ] = False,
    top: Annotated[int, typer.Option(help="Columns to explain in each row.", min=1)] = 3,
    drop: Drop = None,
    delimiter: Delimiter = None,
    out: TableOut = STANDARD,
    device: Device = "auto",
    as_json: RowsAsJson = False,
) -> None:
    """Compute the log density of each row, with an estimate of its error.

    Log densities are in the units of the data, and unusual rows have low ones. Columns are matched by
    name, in any order. With --explain there is one line for each of the most surprising columns of
    each row: its log density given the columns before it, its surprise (how many nats that is below
    the average there), and the values that would have been likely: the median and the 90 %
    highest-density region.
    """
    check_output(out, model, data)
    table = load_any_model(model, device)
    dropped, known = left_out_of(table, drop)
    rows = read_input(data, wanted=table.columns, drop=dropped, ignore=known, delimiter=delimiter)
    with ProgressDisplay() as progress:
        if explained:
            if not isinstance(table, TableModel):
                raise AemError(f"{model} is an ensemble, whose columns have no terms to explain")
            explanation = explain(table, rows.values, progress)
            total = explanation.scores.total
            labels = range(len(total))
            columns = dict(as_columns(table, rows.values, explanation, top, labels))
        else:
            scores = table.score(rows.values, progress)
            total, error = scores.total, scores.error
            columns = {"row": list(range(len(total))), "log_density": total.tolist()}
            columns["error"] = error.tolist()
    summary = as_json_text({"model": str(model), **_summary(total), "out": out})
    write_columns(out, columns, as_json=as_json)
    if as_json and out != STANDARD:
        say(summary)


def _summary(total: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "rows": len(total),
        "mean_log_density": float(total.mean()),
        "median_log_density": float(np.median(total)),
        "lowest_log_density": float(total.min()),
        "lowest_row": int(total.argmin()),
    }
