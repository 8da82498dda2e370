"""The trials on MINIBOONE are valid, end in time, are never run twice, and the best become mixtures."""

import json
from pathlib import Path
from typing import Any

import pytest

from aem.errors import AemError
from aem.paper.tables.config import TableConfig, table_experiment
from benchmarks.claims import miniboone_trials, tune

TRIALS = {"wide": "model.hidden=64", "narrow": "model.hidden=16", "odd": "model.hidden=33"}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[TableConfig]:
    """What was trained; narrow networks do best, and odd ones explode."""
    done: list[TableConfig] = []

    def attempt(config: TableConfig, *_: object) -> dict[str, Any]:
        done.append(config)
        if config.model.hidden == 33:
            raise AemError("the loss became nan")
        return {
            "validation_log_prob": -float(config.model.hidden),
            "validation_proposal_log_prob": -100.0,
            "best_steps": [10],
            "seconds": 1.0,
        }

    monkeypatch.setattr(tune, "attempt", attempt)
    monkeypatch.setattr(tune, "load_splits", lambda _: None)
    monkeypatch.setattr(miniboone_trials, "TRIALS", TRIALS)
    return done


@pytest.mark.parametrize("name", miniboone_trials.TRIALS)
def test_trials_are_valid(name: str) -> None:
    config = table_experiment("miniboone", "best", None, miniboone_trials.settings_of(name))
    assert config.train.warmup == 0, "energies train from the first step"
    assert config.task.validation_rows == 0, "all of them judge"


def test_trials_differ() -> None:
    settings = [tuple(miniboone_trials.settings_of(name)) for name in miniboone_trials.TRIALS]
    assert len(set(settings)) == len(settings)


def test_the_best_become_mixtures_and_nothing_runs_twice(
    tmp_path: Path, ran: list[TableConfig]
) -> None:
    out = tmp_path / "trials.json"
    table = miniboone_trials.run(out, 60, 3, 1, ["train.steps=20"])
    assert [(c.model.hidden, c.ensemble.members) for c in ran] == [
        (64, 1),
        (16, 1),
        (33, 1),
        (16, 3),
    ]
    assert all(config.train.steps == 20 for config in ran)
    lines = table.splitlines()
    assert lines[1].startswith("narrow")
    assert lines[-1].split(maxsplit=1) == ["odd", "the loss became nan"]
    assert len(json.loads(out.read_text())["trials"]) == 4
    assert miniboone_trials.run(out, 60, 3, 1, ["train.steps=20"]) == table
    assert len(ran) == 4


def test_no_trial_begins_without_time(
    tmp_path: Path, ran: list[TableConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    table = miniboone_trials.run(tmp_path / "trials.json", -1.0, 1, 1, [])
    assert not ran
    assert len(table.splitlines()) == 1
    assert "no time is left for: wide" in capsys.readouterr().out
