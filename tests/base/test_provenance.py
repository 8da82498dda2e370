"""A result says how it was made in words that can be typed again."""

import sys
from pathlib import Path

import pytest

import aem.cli
from aem.base.provenance import command_line


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("/usr/local/bin/aem", "aem"),
        (str(Path(aem.cli.__file__).with_name("__main__.py")), "aem"),  # python -m aem.cli
        ("/somewhere/benchmarks/cli.py", "cli.py"),
        ("benchmarks/tune.py", "tune.py"),
    ],
)
def test_command_line(program: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program, "reproduce", "power", "--out", "a b"])
    assert command_line() == f"{shown} reproduce power --out 'a b'"
