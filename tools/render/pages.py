"""What the renderers share: reading results, and Markdown tables."""

import json
from pathlib import Path
from typing import Any

from aem.base.console import as_markdown

ROOT = Path(__file__).resolve().parents[2]


def result(name: str) -> dict[str, Any] | None:
    """One result file, if it is there."""
    path = ROOT / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def markdown(header: list[str], rows: list[list[str]], empty: str = "") -> str:
    """A Markdown table, or a sentence where there is nothing to show."""
    if not rows:
        return f"{empty}\n" if empty else ""
    return as_markdown([header, *rows])
