"""`aem reproduce figures`: the paper's figures from the files under results/."""

from pathlib import Path
from typing import Annotated

import typer

from aem.paper.figures import draw_all


def figures(
    results: Annotated[Path, typer.Option(help="Folder of results.")] = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Default: figures, in there.")] = None,
) -> None:
    """Draw every figure of the paper for which there is data, and say what the others lack."""
    for figure, file, missing in draw_all(results, out or results / "figures"):
        if file is not None:
            typer.echo(f"{figure.name}: wrote {file}")
        else:
            lacking = ", ".join(missing)
            typer.echo(f"{figure.name}: no data, as {lacking} is missing; run {figure.origin}")
