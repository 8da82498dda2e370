"""`aem reproduce`: the paper's experiments, one command each."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aem.data.tasks import PLANE_TASKS
from aem.paper.cli import tables
from aem.paper.cli.figures import figures
from aem.paper.cli.options import Config, Out, Preset, Quiet, SettingsOption
from aem.paper.cli.studies import calibration, dimensionality
from aem.paper.cli.table1 import table1
from aem.paper.cli.vae import vae
from aem.paper.plane.config import experiment
from aem.paper.plane.run import PlaneRun, run_plane

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Reproduce the paper's experiments."
)

Image = Annotated[str, typer.Option(help="Picture to learn; default: the one that ships.")]


def _run(
    task: str,
    preset: str,
    out: Path,
    config: Path | None,
    settings: list[str] | None,
    quiet: bool,
    image: str = "",
) -> None:
    assignments = [*(settings or [])]
    if image:
        assignments.insert(0, f"task.image={image!r}")
    run = run_plane(experiment(task, preset, config, assignments), preset, out, quiet=quiet)
    if not quiet:
        _show(run)


def _show(run: PlaneRun) -> None:
    metrics = run.metrics
    importance = metrics["importance"] or {}
    table = Table(title=f"{metrics['task']} · {metrics['preset']}", show_header=False)
    for label, value in (
        ("test log-likelihood", _mean(metrics, "test_log_prob")),
        ("error of the normalisers", _number(metrics, "test_log_prob_error", ".1e")),
        ("rows without a density", f"{metrics['rows_without_density'] or ''}"),
        ("by importance sampling", _mean(importance, "mean", "two_se")),
        ("proposal alone", _number(metrics, "proposal_log_prob")),
        ("best possible", _number(metrics, "limit")),
        ("gap", _mean(metrics, "gap")),
        ("gap by importance sampling", _mean(importance, "gap")),
        ("gap of the proposal", _number(metrics, "proposal_gap")),
        ("training", f"{metrics['steps']} steps, {metrics['seconds']:.0f} s, {metrics['device']}"),
        ("written to", escape(str(run.folder))),
    ):
        if value:
            table.add_row(label, value)
    Console().print(table)


def _number(record: dict[str, Any], key: str, form: str = ".4f") -> str:
    value = record.get(key)
    return "" if value is None else f"{value:{form}}"


def _mean(record: dict[str, Any], key: str, error: str = "") -> str:
    """A mean with its two standard errors."""
    mean, two_se = _number(record, key), _number(record, error or f"{key}_2se")
    return f"{mean} ± {two_se}" if two_se else mean


def _plane_command(task: str) -> None:
    """Register one plane task; they differ in name, and the image task in its picture."""

    def command(
        out: Out,
        preset: Preset = "fast",
        config: Config = None,
        settings: SettingsOption = None,
        quiet: Quiet = False,
    ) -> None:
        _run(task, preset, out, config, settings, quiet)

    def image_command(
        out: Out,
        preset: Preset = "fast",
        image: Image = "",
        config: Config = None,
        settings: SettingsOption = None,
        quiet: Quiet = False,
    ) -> None:
        _run(task, preset, out, config, settings, quiet, image)

    help_text = f"Train, evaluate and draw the task '{task}'."
    app.command(task, help=help_text)(image_command if task == "image" else command)


for _task in PLANE_TASKS:
    _plane_command(_task)
tables.register(app)
app.command()(vae)
app.command()(calibration)
app.command()(dimensionality)
app.command()(table1)
app.command()(figures)
