"""`aem fit`: a model of a table, without tuning."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from aem.automatic import Settings, fit_table
from aem.commands.progress import Progress
from aem.commands.streams import check_place, read_rows
from aem.provenance import provenance
from aem.tablemodel import TableModel

EPILOG = """
Examples:

  aem fit wine.csv --out wine.model

  aem fit sensors.parquet --drop id --drop label --out sensors.model

  zcat big.csv.gz | aem fit - --out big.model --json
"""


def fit(
    data: Annotated[str, typer.Argument(help="CSV, TSV, Parquet or .npy; - for standard input.")],
    out: Annotated[Path, typer.Option(help="Where to write the model.")],
    drop: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; may be given several times.")
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(help="Gaussians the proposals start from.", show_default="chosen", min=1),
    ] = None,
    hidden: Annotated[
        int | None, typer.Option(help="Units of the network.", show_default="chosen", min=1)
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Training steps; 0: mixture alone.", show_default="chosen", min=0),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same table and seed give the same model.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not sentences.")] = False,
) -> None:
    """Fit the density of a table.

    Every column must hold numbers, without gaps. Nothing needs tuning: sizes, steps and
    regularisation follow from the table. Columns of whole numbers or of few values are treated as
    discrete, and the command says which.
    """
    started = time.monotonic()
    check_place(out)
    dropped = list(drop or ())
    rows = read_rows(data, drop=dropped)
    with Progress() as progress:
        fitted = fit_table(
            rows.values,
            rows.names,
            settings=Settings(components=components, hidden=hidden, steps=steps),
            seed=seed,
            device=device,
            report=progress,
            quiet=False,
        )
    seconds = round(time.monotonic() - started, 2)
    origin = provenance(fitted.model.config, seed, fitted.model.shift.device)
    fitted.about.update(dropped=dropped, seconds=seconds, **origin)
    table = TableModel(fitted)
    table.save(out)
    if as_json:
        record = {"model": str(out), "columns": list(rows.names), **table.about}
        typer.echo(json.dumps(record, indent=2, allow_nan=False))
        return
    console = Console()
    for line in sentences(table, out, seconds):
        console.print(line, highlight=False, soft_wrap=True)


def sentences(table: TableModel, out: Path, seconds: float) -> list[str]:
    """What was done, for a person."""
    about = table.about
    lines = [
        f"Fitted {about['rows']:,} rows × {len(table.columns)} columns in {seconds:.1f} s; "
        f"the model is {out}."
    ]
    lines += [
        f"Column '{column.column}' is discrete ({column.why}): its densities are the probability "
        f"of a value divided by its step of {column.step:g}."
        for column in table.discrete
    ]
    lines += [
        f"Column '{lens.column}' is crowded: the model sees it through a lens that spreads its rows."
        for lens in table.lenses.values()
    ]
    lines.append(_network(about))
    lines.append(f"Next: aem score {out} DATA --explain, or aem sample {out} -n 1000.")
    return lines


def _network(about: dict[str, Any]) -> str:
    network, mixture = about["network"], about["mixture"]
    size = f"a mixture of {mixture['components']} Gaussians"
    if mixture["starts"] > 1:
        size += f", pooled over {mixture['starts']} starts"
    if network is None:
        return f"The density is {size}; the networks were not trained on so small a table."
    if not network["kept"]:
        return f"The density is {size}; held-out rows gained nothing from the networks."
    gain = network["validation_log_prob"] - network["mixture_validation_log_prob"]
    return (
        f"Held-out rows have a mean log density of {network['validation_log_prob']:.3f}, "
        f"{gain:.3f} more than {size}."
    )
