"""What the documentation site takes from elsewhere in the repository while it is built.

Pictures come from results/, and `<!-- help NAME -->` becomes what `aem NAME --help` prints.
"""

import html
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ("gallery.png", "calibration/plane.png", "figures/figure5.png", "precision/power.png")
WHERE_DRAWN = ("vae/best.png", "vae/paper.png")  # of experiments that may not have been run
HELP = re.compile(r"<!-- help ([\w ]*?) ?-->")


def on_files(files: Any, config: Any) -> Any:
    """Pictures live beside the numbers they are drawn from."""
    from mkdocs.structure.files import File

    drawn = tuple(name for name in WHERE_DRAWN if (ROOT / "results" / name).is_file())
    for name in PICTURES + drawn:
        picture = ROOT / "results" / name
        files.append(File.generated(config, f"pictures/{name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the help of commands."""
    return HELP.sub(lambda found: _help(found.group(1).split()), markdown)


def _help(command: list[str]) -> str:
    os.environ.update(TERMINAL_WIDTH="88", COLUMNS="88", NO_COLOR="1", TERM="dumb")
    from typer.testing import CliRunner

    from aem.cli.app import app

    shown = CliRunner().invoke(app, [*command, "--help"], prog_name="aem")
    if shown.exit_code:
        raise SystemExit(f"aem {' '.join(command)} --help failed: {shown.output}")
    lines = [line.rstrip() for line in shown.output.strip("\n").splitlines()]
    return f'<pre class="help"><code>{html.escape(chr(10).join(lines), quote=False)}</code></pre>'
