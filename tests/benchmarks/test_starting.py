"""Starts of the program: which tree is started, how often, and how the table shows it."""

from pathlib import Path
from typing import Any

import pytest

from aem.errors import AemError
from benchmarks.speed.starting import COMMANDS, Plan, check_source, measure
from tools.render import speed


def tree(folder: Path, main: str) -> Path:
    """A source tree of a program that does only this."""
    package = folder / "aem"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "cli.py").write_text(f"import sys\n\ndef main():\n    {main}\n")
    return folder


def test_each_tree_is_started_as_often_and_in_turns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sources = {
        name: tree(tmp_path / name, f"open({str(log)!r}, 'a').write('{name} ' + str(sys.argv[1:]))")
        for name in ("before", "after")
    }
    found = measure(sources, Plan(turns=2))
    expected = [f"{name} {list(c)}" for c in COMMANDS for _ in range(3) for name in sources]
    assert log.read_text() == "".join(expected)
    assert [(m["start"], m["tree"]) for m in found] == [
        (" ".join(("aem", *command)), name) for command in COMMANDS for name in sources
    ]
    assert all(len(m["seconds"]) == 2 for m in found), "the first start does not count"


def test_a_program_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(AemError, match="--help failed"):
        measure({"after": tree(tmp_path / "after", "sys.exit(1)")}, Plan(turns=1))


def test_a_tree_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AemError):
        check_source(tmp_path)


def test_the_table_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    record: dict[str, Any] = {
        "command": "python -m benchmarks.speed.starting",
        "device": "CPU",
        "cores": 2,
        "seconds": 60.0,
        "commit": "abc",
        "before_commit": "def",
        "measurements": [
            {"start": "aem --help", "tree": "before", "median": 9.0},
            {"start": "aem --help", "tree": "after", "median": 0.4},
        ],
    }
    monkeypatch.setattr(speed, "result", lambda name: record)
    lines = speed.starting_table().splitlines()
    assert lines[0] == "| command | now, s | before, s | times as fast |"
    assert lines[2] == "| `aem --help` | 0.4 | 9 | 22.5 |"
    assert lines[-1].endswith("CPU, 2 cores, commit abc, before: def, 60 s.")
    record["before_commit"] = None
    del record["measurements"][0]
    lines = speed.starting_table().splitlines()
    assert lines[0] == "| command | now, s |"
    assert lines[2] == "| `aem --help` | 0.4 |"
    monkeypatch.setattr(speed, "result", lambda name: None)
    assert speed.starting_table().startswith("Not measured yet")
