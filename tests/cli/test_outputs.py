"""Where commands write: looked at first, never over an input, whole or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aem import TableModel
from aem.tables.model import ColumnScores
from tests.support.running import refused, run


def test_outputs_that_cannot_be(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("way").write_text("in the way")
    refused(["sample", "wine.aem", "-n", "3", "--out", "o.xls"], "o.xls", monkeypatch, capsys)
    refused(["score", "wine.aem", "wine.csv", "--out", "way/o.csv"], "way", monkeypatch, capsys)
    refused(["fit", "wine.csv", "--out", "."], ".", monkeypatch, capsys)
    refused(["fit", "wine.csv", "--out", "way/m"], "way", monkeypatch, capsys)
    refused(["fit", "missing.csv", "--out", "m"], "missing.csv", monkeypatch, capsys)
    refused(["fit", "wine.csv", "--drop", "nose", "--out", "m"], "'nose'", monkeypatch, capsys)
    os.mkfifo("pipe")
    refused(["fit", "wine.csv", "--out", "pipe"], "not an ordinary file", monkeypatch, capsys)
    refused(
        ["fit", "wine.csv", "--out", "-"],
        "a model cannot be written to standard output",
        monkeypatch,
        capsys,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "wine.csv", "--out", "./wine.csv"],
        ["fit", "wine.csv", "--out", "link.csv"],
        ["score", "wine.aem", "wine.csv", "--out", "wine.csv"],
        ["score", "model.csv", "wine.csv", "--out", "model.csv"],
        ["sample", "model.csv", "-n", "3", "--out", "model.csv"],
        ["report", "model.html", "wine.csv", "--out", "model.html"],
        ["evaluate", "wine.aem", "wine.csv", "--out", "wine.csv"],
        ["evaluate", "wine.aem", "model.csv", "--validation", "wine.csv", "--out", "wine.csv"],
    ],
)
def test_inputs_are_never_written_over(
    arguments: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("link.csv").symlink_to("wine.csv")
    for name in ("model.csv", "model.html"):
        Path(name).write_bytes(Path("wine.aem").read_bytes())
    before = {path: path.read_bytes() for path in Path().iterdir()}
    refused(arguments, "is what the command reads", monkeypatch, capsys)
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_not_even_what_comes_from_standard_input(folder: Path) -> None:
    before = Path("wine.csv").read_bytes()
    with Path("wine.csv").open("rb") as table:
        done = subprocess.run(
            [sys.executable, "-m", "aem.cli", "score", "wine.aem", "-", "--out", "wine.csv"],
            stdin=table,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "is what the command reads" in done.stderr
    assert Path("wine.csv").read_bytes() == before


def test_a_name_as_long_as_names_may_be(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "x" * 251 + ".csv"
    assert run(monkeypatch, "score", "wine.aem", "wine.csv", "--out", name) == 0
    assert Path(name).is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "wine.csv", "--out", "new/m"],
        ["score", "wine.aem", "wine.csv", "--out", "o.csv"],
        ["sample", "wine.aem", "-n", "3", "--out", "o.csv"],
        ["report", "wine.aem", "wine.csv", "--out", "o.html"],
        ["evaluate", "wine.aem", "wine.csv", "--out", "o.json"],
    ],
)
def test_outputs_are_tried_before_the_work(
    arguments: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("worked for nothing")

    for name in ("streams.read_raw", "places.load_table", "places.load_single"):
        monkeypatch.setattr(f"aem.cli.{name}", work)
    long = [*arguments[:-1], "a" * 300 + Path(arguments[-1]).suffix]
    refused(long, "File name too long", monkeypatch, capsys)
    # Even where an administrator may write there is no writing into this folder of Linux.
    if Path("/proc/self").exists():
        below = [*arguments[:-1], f"/proc/new/{arguments[-1]}"]
        refused(below, "cannot write /proc/new/", monkeypatch, capsys)

    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryDirectory", deny)
        refused(arguments, f"Permission denied, in {Path.cwd()}", monkeypatch, capsys)
    monkeypatch.setattr("pathlib.Path.touch", deny)
    refused(arguments, f"Permission denied, in {Path.cwd()}", monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "wine.csv", "--components", "1", "--out", "new/o.aem"], "the model is {}"),
        (["score", "wine.aem", "wine.csv", "--out", "new/o.csv"], "Wrote 178 rows to {}"),
        (["sample", "wine.aem", "-n", "3", "--out", "new/o.parquet"], "Wrote 3 rows to {}"),
        (
            ["report", "wine.aem", "wine.csv", "--rows", "5", "--out", "new/o.html"],
            "The report is {}",
        ),
        (
            ["evaluate", "wine.aem", "wine.csv", "--samples", "0", "--out", "new/o.json"],
            "The JSON is {}",
        ),
    ],
)
def test_what_was_written_is_told_in_one_line(
    arguments: list[str],
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = said.format(arguments[-1])
    for again in ("", ", in place of an earlier file"):
        assert run(monkeypatch, *arguments) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if expected in line]
        assert line.endswith(f"{expected}{again}.")
        assert [path.name for path in Path("new").iterdir()] == [Path(arguments[-1]).name]
    assert run(monkeypatch, *arguments, "--quiet") == 0
    captured = capsys.readouterr()
    assert expected not in captured.out and not captured.err
    assert run(monkeypatch, *arguments, "--json") == 0
    json.loads(capsys.readouterr().out)


def test_json_has_no_infinities(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = np.full((178, 3), -np.inf)
    monkeypatch.setattr(TableModel, "score", lambda *_: ColumnScores(scores, np.zeros(178)))
    assert run(monkeypatch, "score", "wine.aem", "wine.csv", "--out", "s.json", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["mean_log_density"] is None and summary["lowest_row"] == 0
    text = Path("s.json").read_text()
    assert "Infinity" not in text and json.loads(text)[0]["log_density"] is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_output(folder: Path, unbuffered: str) -> None:
    program = [sys.executable, "-m", "aem.cli", "sample", "wine.aem", "-n", "10"]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            program,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert ended.returncode == 2
    assert ended.stderr == "aem: cannot write to standard output: No space left on device\n"
