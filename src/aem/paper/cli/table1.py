"""`aem reproduce table1`: all results on tables beside the published ones."""

from pathlib import Path
from typing import Annotated

import typer

from aem.base.files import write_atomically
from aem.paper.plots import save_figure
from aem.paper.table1 import build


def table1(
    results: Annotated[
        Path, typer.Option(help="Folder of TASK/PRESET.json files, or of runs' folders.")
    ] = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Folder for table1.md and table1.png.")] = None,
) -> None:
    """Gather results of runs into the paper's table 1, as Markdown and as a picture."""
    table = build(results)
    folder = out or results
    write_atomically(folder / "table1.md", table.markdown().encode())
    save_figure(table.figure(), folder / "table1.png")
    typer.echo(f"wrote {folder / 'table1.md'} and {folder / 'table1.png'}")
