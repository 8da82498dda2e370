"""The command line: `aem COMMAND …`. Bad input is one sentence on standard error and exit code 2."""

import sys

import typer

from aem.commands import data, evaluate, fit, report, reproduce, sample, score
from aem.errors import AemError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Autoregressive energy machines: densities that are normalised and know their error.",
)
app.command(epilog=fit.EPILOG)(fit.fit)
app.command(epilog=score.EPILOG)(score.score)
app.command(epilog=sample.EPILOG)(sample.sample)
app.command(epilog=report.EPILOG)(report.report)
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(data.app, name="data")
app.command()(evaluate.evaluate)


def main() -> None:
    """Run the program."""
    try:
        app()
    except AemError as error:
        print(f"aem: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("aem: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
