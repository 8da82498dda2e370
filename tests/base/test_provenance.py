"""A result says how it was made in words that can be typed again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import aem
from aem.base.provenance import command_line

SAY_SO = "from aem.base.provenance import command_line\nprint(command_line())\n"


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("/usr/local/bin/aem", "aem"),
        ("aem", "aem"),
        ("/somewhere/studies/widths.py", "python widths.py"),
        ("studies/widths.py", "python studies/widths.py"),
    ],
)
def test_a_program_is_told_by_what_was_typed(
    program: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "reproduce", "power", "--out", "a b"])
    assert command_line() == f"{shown} reproduce power --out 'a b'"


@pytest.mark.parametrize("module", ["studies.widths", "studies"])
def test_a_module_is_told_by_its_name(module: str, tmp_path: Path) -> None:
    package = tmp_path / "studies"
    package.mkdir()
    for name in ("__init__.py", "__main__.py", "widths.py"):
        (package / name).write_text("" if name == "__init__.py" else SAY_SO)
    said = python("-m", module, "--out", "a b", folder=tmp_path)
    assert said == f"python -m {module} --out 'a b'\n"


def test_the_program_as_a_module_is_told_as_the_program(tmp_path: Path) -> None:
    (tmp_path / "say.py").write_text(
        f"import sys, runpy, aem.cli\naem.cli.main = lambda: exec({SAY_SO!r})\n"
        "runpy._run_module_as_main('aem.cli')\n"  # what python -m does
    )
    assert python("say.py", "fit", "a b", folder=tmp_path) == "aem fit 'a b'\n"


def python(*arguments: str, folder: Path) -> str:
    source = str(Path(aem.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": source},
    ).stdout  # fmt: skip
