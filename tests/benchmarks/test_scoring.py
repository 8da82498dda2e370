"""Two versions score the same rows in turns, and the page shows what they took."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aem
from aem.errors import AemError
from aem.model.files import save_model
from benchmarks.speed.scoring import TOLERANCES, Plan, Scorer, compare
from tests.support.rough import rough_model, rows_of
from tools.render import speed

SOURCE = Path(aem.__file__).parents[1]


def files(folder: Path) -> tuple[Path, Path]:
    model = rough_model(size=1.0, features=3)
    save_model(model, folder / "model.aem")
    np.save(folder / "rows.npy", rows_of(model, 6).numpy())
    return folder / "model.aem", folder / "rows.npy"


def test_both_trees_score_the_same_rows(tmp_path: Path) -> None:
    sources = {"before": SOURCE, "after": SOURCE}
    found = compare("rough", files(tmp_path), sources, Plan(rows=5, turns=1))
    assert [(m["tolerance"], m["tree"]) for m in found] == [
        (tolerance, tree) for tolerance in TOLERANCES for tree in sources
    ]
    for m in found:
        assert len(m["seconds"]) == 1, "the first time does not count"
        assert m["apart"] == 0 and m["unconverged"] == 0
        assert 0 < m["mean_error"] < m["tolerance"]
        assert m["most_over_median"] >= 1
    by = {(m["tolerance"], m["tree"]): m["nodes"] for m in found}
    assert by[1e-3, "after"] == by[1e-3, "before"] >= by[1e-2, "after"] > 0


def test_a_tree_that_cannot_score_is_told(tmp_path: Path) -> None:
    with Scorer(tmp_path, tmp_path / "none.aem", tmp_path / "none.npy") as scorer:
        scorer.process.wait()
        with pytest.raises((AemError, BrokenPipeError)):
            scorer.score(1e-2, 1)


def test_the_table_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(tree: str, nodes: float, rate: float) -> dict[str, Any]:
        return {
            "model": "magic", "tolerance": 0.01, "features": 10, "tree": tree, "apart": 0.1,
            "nodes": nodes, "rows_per_second": rate, "most_over_median": 1.5,
        }  # fmt: skip

    record = {
        "command": "python -m benchmarks.speed.scoring", "device": "CPU", "seconds": 60.0,
        "commit": "abc", "before_commit": "def",
        "measurements": [entry("before", 12_000.0, 100.0), entry("after", 6_000.0, 300.0)],
    }  # fmt: skip
    monkeypatch.setattr(speed, "result", lambda name: record)
    table = speed.scoring_table()
    assert "| magic | 10 | 0.01 | 12,000 | 6,000 | 0.50 | 100 | 300 | 3.0 | 1.5 |" in table
