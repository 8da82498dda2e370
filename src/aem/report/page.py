"""The report as one HTML file with style, script and data, which fetches nothing.

Nothing from the data is ever markup: the script puts text into text nodes, the few sentences written
here are escaped, and the data block cannot end early. Should something slip through all the same, the
page's own policy lets no script run but the one whose digest it names, and nothing be fetched.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

# In the order they need each other.
SCRIPTS = (
    "dom",
    "numbers",
    "axes",
    "bars",
    "lines",
    "marginals",
    "pairs",
    "calibration",
    "surprises",
    "training",
    "normaliser",
    "making",
    "main",
)


def render(record: dict[str, Any]) -> str:
    """Return the page that shows a record: one HTML file that fetches nothing.

    Parameters
    ----------
    record
        the `record` of a `BuiltReport`.
    """
    style = _asset("style.css")
    script = '"use strict";\n(() => {\n' + "".join(_asset(f"{s}.js") for s in SCRIPTS) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(record["title"]),
        "summary": "\n".join(f"<p>{html.escape(line)}</p>" for line in record["summary"]),
        "style": style,
        "script": script,
        "data": embedded(record),
    }
    page = _asset("report.html")
    # One pass: what is filled in is never looked at again, whatever it holds.
    pieces = page.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def embedded(record: dict[str, Any]) -> str:
    """Return JSON that is safe inside an HTML element.

    Parameters
    ----------
    record
        the `record` of a `BuiltReport`.
    """
    text = json.dumps(record, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _asset(name: str) -> str:
    return files("aem.report").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
