"""`aem sample`: rows like those a model was fitted on."""

from typing import Annotated

import typer

from aem.base.console import STANDARD, as_json_text, say
from aem.base.display import ProgressDisplay
from aem.base.frames import as_dtype
from aem.base.options import Device, Model, RowsAsJson, TableOut, seed_option
from aem.cli.places import check_output, load_any_model
from aem.cli.streams import write_columns
from aem.config import RESAMPLED

EPILOG = """
Examples:

  aem sample wine.aem -n 1000 > more.csv

  aem sample wine.aem -n 100000 --seed 7 --out more.parquet

  aem sample wine.aem -n 1000 --method resample --proposals 1000
"""


def sample(
    model: Model,
    count: Annotated[int, typer.Option("--rows", "-n", help="How many rows to draw.", min=1)],
    out: TableOut = STANDARD,
    seed: Annotated[int, seed_option("The same seed draws the same rows.")] = 0,
    method: Annotated[
        str,
        typer.Option(
            help="exact; inverse: always by the inverse of the distribution function; resample: as "
            "in the paper, nearly exact; proposal: without the energies."
        ),
    ] = "exact",
    proposals: Annotated[
        int, typer.Option(help="Draws of the proposal each resampled value is chosen from.", min=1)
    ] = RESAMPLED,
    device: Device = "auto",
    as_json: RowsAsJson = False,
) -> None:
    """Draw rows from the density of a model.

    Columns have the names of the table the model was fitted on; discrete ones have their own values,
    and columns of whole numbers, truth values or single precision their types.
    """
    check_output(out, model)
    table = load_any_model(model, device)
    with ProgressDisplay() as progress:
        rows = table.sample(count, seed, progress, method=method, proposals=proposals)
    columns = {
        name: as_dtype(rows[:, d], table.dtypes.get(name)) for d, name in enumerate(table.columns)
    }
    write_columns(out, columns, as_json=as_json)
    if as_json and out != STANDARD:
        say(as_json_text({"model": str(model), "rows": count, "seed": seed, "out": out}))
