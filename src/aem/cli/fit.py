"""`aem fit`: a model of a table, without tuning."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from aem.base.console import STANDARD, as_json_text, is_quiet, is_verbose, say, warn
from aem.base.display import ProgressDisplay
from aem.base.names import listed
from aem.base.options import Delimiter, Device, Table, seed_option
from aem.base.provenance import provenance
from aem.base.settings import help_of
from aem.cli.places import check_place
from aem.cli.streams import IN_PLACE, read_input
from aem.errors import AemError
from aem.model.transforms.normal_scores import NormalScores
from aem.model.transforms.records import to_records
from aem.tables.fit.automatic import FitInterrupted, fit_table
from aem.tables.fit.plan import FEWEST_ROWS_TO_TRAIN
from aem.tables.fit.settings import FitSettings
from aem.tables.model import TableModel

MOST_LINES = 8  # columns that get a line each

EPILOG = """
Examples:

  aem fit wine.csv --out wine.aem

  aem fit sensors.parquet --drop id --drop label --out sensors.aem

  zcat big.csv.gz | aem fit - --out big.aem --json
"""


def fit(
    data: Table,
    out: Annotated[Path, typer.Option(help="Where to write the model.")],
    drop: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; may be given several times.")
    ] = None,
    delimiter: Delimiter = None,
    components: Annotated[
        int | None,
        typer.Option(help=help_of(FitSettings, "components"), show_default="chosen", min=1),
    ] = None,
    hidden: Annotated[
        int | None, typer.Option(help=help_of(FitSettings, "hidden"), show_default="chosen", min=1)
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help=help_of(FitSettings, "steps"), show_default="chosen", min=0),
    ] = None,
    seed: Annotated[int, seed_option("The same table and seed give the same model.")] = 0,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not sentences.")] = False,
) -> None:
    """Fit the density of a table.

    Every column must hold numbers, without gaps. Nothing needs tuning: sizes, steps and
    regularisation follow from the table. Columns of whole numbers or of few values are treated as
    discrete, and the command says which.
    """
    started = time.monotonic()
    if str(out) == STANDARD:
        raise AemError("a model cannot be written to standard output: give the name of a file")
    check_place(out, data)
    dropped = list(drop or ())
    rows = read_input(data, drop=dropped, delimiter=delimiter)
    stopped = None
    with ProgressDisplay() as progress:
        try:
            fitted = fit_table(
                rows.values,
                rows.names,
                settings=FitSettings(components=components, hidden=hidden, steps=steps),
                seed=seed,
                device=device,
                report=progress,
                quiet=is_quiet(),
            )
        except FitInterrupted as interruption:
            fitted, stopped = interruption.fitted, interruption
    seconds = round(time.monotonic() - started, 2)
    table = fitted.table
    origin = provenance(table.model.config, seed, table.model.device)
    table.left_out, table.dtypes = tuple(dropped), dict(rows.dtypes)
    table.about.update(seconds=seconds, **origin)
    record = {
        "model": str(out),
        "columns": list(rows.names),
        "dropped": dropped,
        "first_line_is_a_row": rows.headless,
        "discrete": [column.as_record() for column in table.discrete],
        "transforms": to_records(table.transform),
        **table.about,
    }
    before = out.exists()
    lines = [as_json_text(record)] if as_json else sentences(table, out, seconds)
    if before and not as_json:
        lines[0] = f"{lines[0].removesuffix('.')}{IN_PLACE}."
    table.save(out)
    if as_json or not is_quiet():
        say(*lines)
    for name in table.about["determined"]:
        warn(
            f"column '{name}' follows almost exactly from the columns before it: how narrow a density "
            "a model may have decides its part of a score, so consider leaving it out with --drop"
        )
    if stopped is not None:
        raise stopped


def sentences(table: TableModel, out: Path, seconds: float) -> list[str]:
    """Return what was done as sentences, for a person.

    Parameters
    ----------
    table
        the fitted model.
    out
        the file it was written to.
    seconds
        how long the fit took.
    """
    about = table.about
    lines = [
        f"Fitted {about['rows']:,} rows × {len(table.columns)} columns in {seconds:.1f} s; "
        f"the model is {out}."
    ]
    if len(table.discrete) <= MOST_LINES or is_verbose():
        lines += [
            f"Column '{column.column}' is discrete ({column.why}): its densities are the probability "
            f"of a value divided by its step of {column.step:g}."
            for column in table.discrete
        ]
    else:
        lines.append(
            f"{_columns([column.column for column in table.discrete])} discrete: their densities are "
            "the probability of a value divided by the column's step; --verbose says more."
        )
    scored = [part.column for part in table.transform.parts if isinstance(part, NormalScores)]
    heavy = [table.columns[place] for place in scored]
    if len(heavy) <= MOST_LINES or is_verbose():
        lines += [
            f"Column '{name}' is heavy-tailed: the model reads its normal scores." for name in heavy
        ]
    else:
        lines.append(f"{_columns(heavy)} heavy-tailed: the model reads their normal scores.")
    if about["copies"]:
        lines.append(
            f"{about['copies']:,} rows are copies of others: copies of a row are all used to train, or "
            "all to validate."
        )
    lines.append(_network(about))
    lines.append(f"Next: aem score {out} DATA --explain, or aem sample {out} -n 1000.")
    return lines


def _columns(names: Sequence[str]) -> str:
    return f"{len(names):,} columns ({listed(names)}) are"


def _network(about: dict[str, Any]) -> str:
    network, mixture = about["network"], about["mixture"]
    size = _mixture(mixture)
    if network is None and about["rows"] - about["copies"] < FEWEST_ROWS_TO_TRAIN:
        return f"The density is {size}; the networks were not trained on so small a table."
    if network is None:
        return f"The density is {size}; no networks were trained, as --steps 0 asks."
    if not network["kept"] and network["interrupted"]:
        return (
            f"The density is {size}: the training was stopped before networks had gained anything."
        )
    if not network["kept"]:
        return f"The density is {size}; held-out rows gained nothing from the networks."
    score = network["validation_log_prob"]
    gain = score - network["mixture_validation_log_prob"]
    more = f"Held-out rows have a mean log density of {score:.3f}, {gain:.3f} more than {size}"
    if network["won"] == "proposal":
        return f"{more}; energies added too little to be kept, so that scores are fast."
    own = score - network["proposal_validation_log_prob"]
    return f"{more}; {own:.3f} of that is the energies'."


def _mixture(mixture: dict[str, Any]) -> str:
    if mixture["components"] == 1:
        return "a single Gaussian"  # from whatever start
    size = f"a mixture of {mixture['components']} Gaussians"
    return size if mixture["starts"] == 1 else f"{size}, pooled over {mixture['starts']} starts"
