"""`aem report` as a person meets it."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from aem.cli import main
from aem.tables.model import TableModel

from .conftest import HOSTILE


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["aem", "report", *arguments])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture
def folder(
    tmp_path: Path,
    table: TableModel,
    rows: NDArray[np.float64],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    pd.DataFrame(rows[10:22], columns=list(HOSTILE)).to_csv(tmp_path / "rows.csv", index=False)
    table.save(tmp_path / "rows.aem")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_page_its_numbers_and_the_same_page_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    arguments = ("rows.aem", "rows.csv", "--rows", "10", "--out")
    assert run(monkeypatch, *arguments, "deep/report.html", "--json") == 0
    metrics = json.loads(capsysbinary.readouterr().out)
    assert metrics["rows"] == 12 and metrics["rows_scored"] == 10
    assert metrics["lowest_row"] == 7  # the table's row 17
    first = (folder / "deep" / "report.html").read_bytes()
    assert first.startswith(b"<!doctype html>")
    assert run(monkeypatch, *arguments, "-") == 0
    assert capsysbinary.readouterr().out == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rows.aem", "rows.csv", "--out", "report.pdf"), "not the name of a page"),
        (("rows.aem", "none.csv", "--out", "report.html"), "there is no file none.csv"),
        (("rows.csv", "rows.csv", "--out", "report.html"), "not a model file"),
        (("rows.aem", "one.csv", "--out", "report.html"), "has one row"),
        (("rows.aem", "rows.csv", "--out", "-", "--json"), "standard output"),
        (("rows.aem", "rows.csv", "--out", "folder.html"), "is a folder"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    pd.read_csv("rows.csv").head(1).to_csv("one.csv", index=False)
    Path("folder.html").mkdir()
    assert run(monkeypatch, *arguments) == 2
    said = capsys.readouterr().err
    assert message in said and len(said.strip().splitlines()) == 1
    assert not Path("report.html").exists()
