"""Table 1 from result files: what is there, what is not, and nothing of the subsets."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from aem.cli import main
from aem.errors import AemError
from aem.paper.published import COLUMNS, TABLE_1
from aem.paper.table1 import COLUMN_TASKS, Cell, Table1, build


def score(mean: float, rows: int, **more: Any) -> dict[str, Any]:
    return {
        "rows": rows,
        "rows_without_density": 0,
        "mean": mean,
        "two_se": 0.05,
        "median": mean,
        "worst": mean - 9,
        "whole_split": mean + 0.1,
        "whole_split_2se": 0.02,
        **more,
    }


def write(
    results: Path, task: str, preset: str, *, unfinished: bool = False, **scores: Any
) -> None:
    plain: dict[str, Any] = {"importance": None, "kde": None}
    test = {"rows": 1000, "proposal": score(0.5, 1000), **plain, **scores}
    (results / task).mkdir(parents=True, exist_ok=True)
    training = [{"steps": 1234, "unfinished": True} if unfinished else {"steps": 1234}]
    record = {"task": task, "preset": preset, "steps": 1234, "training": training, "test": test}
    (results / task / f"{preset}.json").write_text(json.dumps(record))


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AEM_DATA", str(tmp_path / "nowhere"))
    some = score(0.7, 200, error=6e-4, rows_without_density=3)
    write(tmp_path, "power-maf", "paper", quadrature=some)
    write(tmp_path, "power", "best", quadrature=score(1.3, 1000, error=6e-4))
    write(tmp_path, "gas-10k", "best", quadrature=score(6.8123, 1000, error=6e-4))
    return tmp_path


def test_folders_of_runs_are_found(results: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name, content in (("odd", "[1]"), ("broken", "{")):
        (runs / name).mkdir(parents=True)
        (runs / name / "metrics.json").write_text(content)
    (runs / "mine").mkdir()
    (results / "power" / "best.json").rename(runs / "mine" / "metrics.json")
    found = cell(build(runs), "ours, best", "AEM, quadrature", "POWER, minutes blurred")
    assert found.value == pytest.approx(1.3)


def cell(table: Table1, section: str, row: str, column: str) -> Cell:
    rows = dict(dict(table.sections)[section])
    return rows[row][list(COLUMN_TASKS).index(column)]


def test_cells(results: Path) -> None:
    table = build(results)
    published = cell(table, "published with the paper", "AEM, 20,000 samples", "BSDS300")
    assert published.text == "158.71 ± 0.14"
    # A part of the rows: the estimate for all of them, and a note that says so.
    paper = cell(table, "ours, the paper's settings", "AEM, quadrature", "POWER")
    assert paper.text == "0.80 ± 0.02"
    assert paper.note is not None
    note = table.notes[paper.note - 1]
    assert "200 of 1,000 test rows" in note
    assert "3 rows that have no density" in note
    assert "6e-04" in note
    # All rows: the plain mean.
    best = cell(table, "ours, best", "AEM, quadrature", "POWER, minutes blurred")
    assert best.text == "1.30 ± 0.05"
    assert cell(table, "ours, best", "AEM-KDE", "POWER, minutes blurred").text == "not computed"
    absent = cell(table, "ours, best", "AEM, quadrature", "GAS")
    assert (absent.text, absent.value) == ("no data", None)
    assert absent.note is not None
    assert "aem data fetch gas" in table.notes[absent.note - 1]


def test_what_was_not_finished_says_so(results: Path) -> None:
    assert "stopped" not in build(results).markdown()
    write(results, "power", "paper", unfinished=True, quadrature=score(0.7, 1000, error=6e-4))
    stopped = [note for note in build(results).notes if "stopped" in note]
    assert [note.split(":")[0] for note in stopped] == ["POWER, minutes blurred, paper"]
    assert "1,234 steps" in stopped[0]


def test_data_without_a_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    present = type("Status", (), {"present": True})
    monkeypatch.setattr("aem.paper.table1.registry.status", lambda _: present)
    assert cell(build(results), "ours, best", "AEM, quadrature", "GAS").text == "not run"


def test_subsets_are_left_out(results: Path) -> None:
    text = build(results).markdown()
    assert "6.81" not in text
    assert not any("-10k" in task or "-5k" in task for task in COLUMN_TASKS.values())


def test_published_rows_are_complete() -> None:
    assert [row.model for row in TABLE_1][-1] == "AEM, 20,000 samples"
    assert all(tuple(row.scores) == COLUMNS for row in TABLE_1)


def test_command(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["aem", "reproduce", "table1", "--results", str(results)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert (results / "table1.png").read_bytes().startswith(b"\x89PNG")
    assert "| MADE-MoG | 0.40 ± 0.01 |" in (results / "table1.md").read_text()


def test_foreign_files_are_refused(results: Path) -> None:
    (results / "power-maf" / "best.json").write_text('{"test": 3}')
    with pytest.raises(AemError, match=r"power-maf/best\.json"):
        build(results)
    with pytest.raises(AemError, match="missing"):
        build(results / "missing")
