"""The command line: `aem COMMAND …`."""

import inspect
import sys
import warnings
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from aem.commands import data, evaluate, fit, report, reproduce, sample, score
from aem.commands.threads import give_threads
from aem.errors import Interrupted
from aem.scoring import AccuracyWarning


class Commands(TyperGroup):
    """Commands whose interruption is an error like any other: typer would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Autoregressive energy machines: densities that are normalised and know their error.",
)


def flowing(text: str) -> str:
    """Text without the line breaks of its source: a terminal has its own width."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


for command, epilog in (
    (fit.fit, fit.EPILOG),
    (score.score, score.EPILOG),
    (sample.sample, sample.EPILOG),
    (report.report, report.EPILOG),
):
    app.command(help=flowing(command.__doc__ or ""), epilog=epilog)(command)
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(data.app, name="data")
app.command()(evaluate.evaluate)
give_threads(app)


def run() -> None:
    """Run the command that the arguments name."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, AccuracyWarning):
                print(f"aem: {message}", file=sys.stderr)
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        try:
            app()
        except Interrupted as stopped:
            raise KeyboardInterrupt(str(stopped)) from None
