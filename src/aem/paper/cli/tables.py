"""`aem reproduce power`, `gas`, …: the paper's experiments on tables of real data."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from aem.base.console import say
from aem.paper.cli.options import Config, Out, Preset, Quiet, SettingsOption
from aem.paper.cli.progress import shown
from aem.paper.tables.config import TABLES, table_experiment
from aem.paper.tables.run import TableRun, run_table

EvaluateOnly = Annotated[
    bool,
    typer.Option(
        "--evaluate-only",
        help="Do not train: score the model in the folder, or the best so far of a stopped run.",
    ),
]
LABELS = {
    "proposal": "proposal",
    "kde": "AEM-KDE",
    "importance": "AEM, sampled",
    "quadrature": "AEM, quadrature",
}


def register(app: typer.Typer) -> None:
    """Register one command per table.

    Parameters
    ----------
    app
        the program that gets them.
    """
    for name in TABLES:
        _table_command(app, name)


def _table_command(app: typer.Typer, name: str) -> None:
    def command(
        out: Out,
        preset: Preset = "fast",
        config: Config = None,
        settings: SettingsOption = None,
        evaluate_only: EvaluateOnly = False,
        quiet: Quiet = False,
    ) -> None:
        experiment = table_experiment(name, preset, config, settings or [])
        with shown(quiet=quiet) as report:
            run = run_table(
                experiment, preset, out, evaluate_only=evaluate_only, quiet=quiet, report=report
            )
        if not quiet:
            _show(run)

    app.command(name, help=f"Train and evaluate on the table '{name}'.")(command)


def _show(run: TableRun) -> None:
    metrics = run.metrics
    table = Table(title=f"{metrics['task']} · {metrics['preset']}", title_justify="left")
    table.add_column("log-likelihood (nats)")
    for heading in ("mean ± 2 s.e.", "error", "median", "worst row", "rows"):
        table.add_column(heading, justify="right")
    for split in ("validation", "test"):
        table.add_section()
        table.add_row(f"[bold]{split}")
        for score, label in LABELS.items():
            if metrics[split][score] is not None:
                table.add_row(label, *_cells(metrics[split][score]))
    Console().print(table)
    say(*_sentences(run))


def _cells(score: dict[str, Any]) -> list[str]:
    def number(key: str, form: str = ".4f") -> str:
        value = score.get(key)
        return "" if value is None else format(value, form)

    return [
        f"{number('mean')} ± {number('two_se')}",
        number("error", ".0e"),
        number("median"),
        number("worst", ".2f"),
        f"{score['rows']:,}",
    ]


def _sentences(run: TableRun) -> list[str]:
    metrics = run.metrics
    lines = []
    test = metrics["test"]["quadrature"]
    if test["rows"] < metrics["test"]["rows"] and "whole_split" in test:
        lines.append(
            f"All {metrics['test']['rows']:,} test rows, estimated with the proposal's mean over"
            f" them: {test['whole_split']:.4f} ± {test['whole_split_2se']:.4f} by quadrature."
        )
    without = metrics["test"]["quadrature"]["rows_without_density"]
    if without:
        lines.append(
            f"{without:,} test rows have no density, as a literal energy did not decay;"
            " the quadrature's figures leave them out."
        )
    refinement = metrics["refinement"]
    if refinement is not None and refinement["held_still"] is False:
        lines.append(
            f"The quadrature has not converged: with more nodes its mean changed by"
            f" {refinement['moved']} nats, and its stated error was"
            f" {refinement['claimed_error_before']}."
        )
    unfinished = any(m.get("unfinished") for m in metrics["training"])
    lines.append(
        f"{'Not finished: ' if unfinished else ''}{metrics['steps']:,} steps in"
        f" {metrics['seconds']:.0f} s, evaluation {metrics['evaluation_seconds']:.0f} s,"
        f" {metrics['device']}; written to {run.folder}"
    )
    return lines
