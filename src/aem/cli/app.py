"""The program `aem COMMAND …`, which imports the module of a command only when it runs it."""

import inspect
import signal
import sys
import warnings
from functools import cache
from importlib import import_module
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from aem import __version__
from aem.errors import AccuracyWarning, Interrupted

# Where each command is found, and the first sentence of its help.
COMMANDS = {
    "fit": ("aem.cli.fit", "Fit the density of a table."),
    "score": (
        "aem.cli.score",
        "Compute the log density of each row, with an estimate of its error.",
    ),
    "sample": ("aem.cli.sample", "Draw rows from the density of a model."),
    "report": (
        "aem.cli.report",
        "Write an HTML page about a model and a table, which works offline.",
    ),
    "evaluate": (
        "aem.cli.evaluate",
        "Compare log-likelihoods by quadrature, importance sampling, AEM-KDE and the proposal.",
    ),
    "data": ("aem.cli.data", "List the data sets under AEM_DATA, and download them."),
    # By name: the library does not know the paper, which is its client.
    "reproduce": ("aem.paper.cli.app", "Reproduce the paper's experiments."),
}


class Commands(TyperGroup):
    """The commands, imported when they are needed, because importing torch takes seconds.

    An interruption is reported as an error; typer would end without a message.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its help alone, for the list of commands."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import and return the command that the arguments name."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(name or ""), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None


@cache
def load(name: str) -> Any:
    """Import a command: a module's function of that name with its EPILOG, or its `app`.

    Parameters
    ----------
    name
        name of the command, a key of the table above.
    """
    from aem.cli.common import give_options

    module = import_module(COMMANDS[name][0])
    program: typer.Typer
    if hasattr(module, "app"):
        program = module.app
    else:
        program, function = typer.Typer(add_completion=False), getattr(module, name)
        text, epilog = flowing(function.__doc__ or ""), getattr(module, "EPILOG", None)
        program.command(name, help=text, epilog=epilog)(function)
    give_options(program)
    command = typer.main.get_command(program)
    command.name = name
    return command


app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},  # those of all commands, too
    pretty_exceptions_enable=False,
    help="Autoregressive energy machines: densities that are normalised and know their error.",
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"aem {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Without a command, say which there are."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def flowing(text: str) -> str:
    """Return text without the line breaks of its source: a terminal has its own width.

    Parameters
    ----------
    text
        paragraphs with empty lines between them.
    """
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def run() -> None:
    """Run the command that the arguments name; SIGTERM has the effect of Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
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
