"""A walk over settings goes uphill, keeps all it saw, and never runs a trial twice."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aem.errors import AemError
from aem.paper.tables.config import TableConfig
from benchmarks.claims import tune as module


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    ladders = {"model.dropout": (0.0, 0.1, 0.2, 0.3), "train.weight_decay": (0.0, 0.01, 0.1)}
    monkeypatch.setattr(module, "LADDERS", ladders)
    monkeypatch.setattr(module, "load_splits", lambda _: None)
    return module


def test_a_walk(tune: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[float] = []

    def attempt(config: TableConfig, *_: object) -> dict[str, Any]:
        ran.append(config.model.dropout)
        if config.model.dropout == 0.3:
            raise AemError("the loss became nan")
        distance = abs(config.model.dropout - 0.2) + abs(config.train.weight_decay - 0.1)
        return {"validation_log_prob": -distance}

    monkeypatch.setattr(tune, "attempt", attempt)
    out = tmp_path / "trials.json"
    trials = tune.Trials("gas-10k", "best", ["train.steps=5"], out)
    trials.walk({"model.dropout": 0.0, "train.weight_decay": 0.0}, seconds=60)
    kept = json.loads(out.read_text())["trials"]
    best = max(kept, key=tune.value_of)
    assert "model.dropout=0.2" in best["settings"]
    assert "train.weight_decay=0.1" in best["settings"]
    assert best["config"]["train"]["steps"] == 5
    failed = [t for t in kept if "failed" in t]
    assert failed
    assert all("nan" in t["failed"] for t in failed)
    count = len(ran)
    again = tune.Trials("gas-10k", "best", ["train.steps=5"], out)
    again.walk({"model.dropout": 0.0, "train.weight_decay": 0.0}, seconds=60)
    assert len(ran) == count
