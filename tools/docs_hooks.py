"""Hooks of the documentation site, which insert content from the rest of the repository.

Pictures come from results/, `<!-- help NAME -->` becomes what `aem NAME --help` prints, and
`<!-- settings module.Class -->` a table of what may be set.
"""

import dataclasses
import html
import json
import os
import re
import typing
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ("gallery.png", "calibration/plane.png", "figures/figure5.png", "precision/power.png")
WHERE_DRAWN = ("vae/best.png", "vae/paper.png")  # of experiments that may not have been run
HELP = re.compile(r"<!-- help ([\w ]*?) ?-->")
SETTINGS = re.compile(r"<!-- settings ([\w.]+)\.(\w+) -->")


def on_files(files: Any, config: Any) -> Any:
    """Add the pictures, which lie beside the results that they are drawn from."""
    from mkdocs.structure.files import File

    drawn = tuple(name for name in WHERE_DRAWN if (ROOT / "results" / name).is_file())
    for name in PICTURES + drawn:
        picture = ROOT / "results" / name
        files.append(File.generated(config, f"pictures/{name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the help of commands and the tables of settings."""
    markdown = SETTINGS.sub(lambda found: _settings(*found.groups()), markdown)
    return HELP.sub(lambda found: _help(found.group(1).split()), markdown)


def _settings(module: str, name: str) -> str:
    """Name, default, range and purpose of every setting, as the dataclass declares them."""
    lines = ["| setting | default | must | what it is for |", "| --- | --- | --- | --- |"]
    for field in dataclasses.fields(getattr(import_module(module), name)):
        allowed, choices = field.metadata["range"], field.metadata["choices"]
        literal = typing.get_args(field.type) or ()
        names = choices or (literal if all(isinstance(a, str) for a in literal) else ())
        must = f"be one of {', '.join(names)}" if names else str(allowed or "")
        shown = "none" if field.default in ((), None) else json.dumps(field.default)
        lines.append(f"| `{field.name}` | {shown} | {must} | {field.metadata['help']} |")
    return "\n".join(lines)


def _help(command: list[str]) -> str:
    os.environ.update(TERMINAL_WIDTH="88", COLUMNS="88", NO_COLOR="1", TERM="dumb")
    from typer.testing import CliRunner

    from aem.cli.app import app

    shown = CliRunner().invoke(app, [*command, "--help"], prog_name="aem")
    if shown.exit_code:
        raise SystemExit(f"aem {' '.join(command)} --help failed: {shown.output}")
    lines = [line.rstrip() for line in shown.output.strip("\n").splitlines()]
    return f'<pre class="help"><code>{html.escape(chr(10).join(lines), quote=False)}</code></pre>'
