"""The reference documents names that exist."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "reference").glob("*.md"))
ENTRY = re.compile(r"^::: ([\w.]+)\n(?:    options: \{members: \[([^\]]*)\]\})?", re.MULTILINE)


def found(name: str) -> Any:
    """A module, or what a module holds."""
    module, _, last = name.rpartition(".")
    try:
        return import_module(name)
    except ImportError:
        return getattr(found(module), last)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_exist(page: Path) -> None:
    for name, members in ENTRY.findall(page.read_text(encoding="utf-8")):
        documented = found(name)
        for member in filter(None, re.split(r",\s*", members)):
            assert hasattr(documented, member), f"{name} has no {member}"
