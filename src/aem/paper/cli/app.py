"""`aem reproduce`: the paper's experiments, one command each."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aem.data.tasks import PLANE_TASKS
from aem.paper.cli import tables
from aem.paper.cli.figures import figures
from aem.paper.cli.options import Config, Out, Preset, Quiet, Settings
from aem.paper.cli.studies import calibration, dimensionality
from aem.paper.cli.table1 import table1
from aem.paper.cli.vae import vae
from aem.paper.plane.config import experiment
from aem.paper.plane.run import Run, run_plane

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


def _show(run: Run) -> None:
    metrics = run.metrics
    table = Table(title=f"{metrics['task']} · {metrics['preset']}", show_header=False)
    for label, value in (
        (
            "test log-likelihood",
            f"{metrics['test_log_prob']:.4f} ± {metrics['test_log_prob_2se']:.4f}",
        ),
        ("error of the normalisers", f"{metrics['test_log_prob_error']:.1e}"),
        ("proposal alone", f"{metrics['proposal_log_prob']:.4f}"),
        ("best possible", f"{metrics['limit']:.4f}"),
        ("gap", f"{metrics['gap']:.4f} ± {metrics['gap_2se']:.4f}"),
        ("training", f"{metrics['steps']} steps, {metrics['seconds']:.0f} s, {metrics['device']}"),
        ("written to", escape(str(run.folder))),
    ):
        table.add_row(label, value)
    Console().print(table)


def _plane_command(task: str) -> None:
    """Register one plane task; they differ in name, and the image task in its picture."""

    def command(
        out: Out,
        preset: Preset = "fast",
        config: Config = None,
        settings: Settings = None,
        quiet: Quiet = False,
    ) -> None:
        _run(task, preset, out, config, settings, quiet)

    def image_command(
        out: Out,
        preset: Preset = "fast",
        image: Image = "",
        config: Config = None,
        settings: Settings = None,
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
