"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from aem.base.settings import SEEDS

Model = Annotated[Path, typer.Argument(help="A model file.")]
Table = Annotated[
    str,
    typer.Argument(
        help="CSV, TSV or other text (compressed or not), Parquet, Feather or .npy; - for standard "
        "input."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="What separates the fields of a text: a character, or comma, tab, semicolon, pipe, "
        "space.",
        show_default="found",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(help="A column of the data to leave out; may be given several times."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
TableOut = Annotated[
    str, typer.Option(help="A .csv, .tsv, .parquet or .json file; - for standard output.")
]
RowsAsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON: the rows, or a summary if they go to a file.")
]


def seed_option(help_text: str) -> Any:
    """Return the command-line option for a seed.

    Parameters
    ----------
    help_text
        what is drawn at random, for the help.
    """
    return typer.Option(help=help_text, min=0, max=SEEDS - 1, metavar="<int>")
