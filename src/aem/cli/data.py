"""`aem data`: which data sets there are, and how to get them."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Column, Table

from aem.data.downloads.fetch import fetch
from aem.data.info import data_root
from aem.data.listing import Entry, listing

app = typer.Typer(
    add_completion=False, help="List the data sets under AEM_DATA, and download them."
)


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """List the data sets: size, licence, source, checksum, whether they are present."""
    if context.invoked_subcommand is not None:
        return
    entries = listing()
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
    else:
        Console().print(_table(entries, data_root()))


@app.command("fetch")
def fetch_command(
    name: Annotated[str, typer.Argument(help="A name that `aem data` lists.")],
) -> None:
    """Download a data set, verify it and put it in its place."""
    for path in fetch(name):
        typer.echo(str(path))


def _table(entries: list[Entry], root: Path) -> Table:
    headings = ("Name", "Size", "Licence and source", "Files and checksums", "Present")
    columns = (Column(heading, overflow="fold") for heading in headings)
    table = Table(*columns, title=f"Data sets under {escape(str(root))}", show_lines=True)
    for entry in entries:
        table.add_row(
            entry["name"],
            _size(entry),
            f"{entry['licence']}\n{entry['source']}",
            "\n".join(_files(entry)),
            "yes" if entry["present"] else f"no: {entry['how_to_get']}",
        )
    return table


def _size(entry: Entry) -> str:
    return "\n".join(
        [f"{rows:,} {split}" for split, rows in entry["rows"].items() if rows]
        + [f"× {entry['columns']} columns"]
    )


def _files(entry: Entry) -> list[str]:
    """Show enough of every checksum to compare by eye; --json has all of it."""
    lines = []
    for file in entry["files"]:
        size = f" ({decimal(file['bytes'])})" if file["bytes"] else ""
        checksum = f" sha256:{file['sha256'][:12]}…" if file["sha256"] else ""
        lines.append(f"{file['path']}{size}{checksum}")
    if not any(file["sha256"] for file in entry["files"]):
        lines += [f"from an archive of {known[:20]}…" for known in entry["download_hashes"]]
    return lines
