"""`aem reproduce` of a task in the plane: one sentence for bad input, complete results otherwise."""

import json
from pathlib import Path

import pytest
import torch

from aem.model.files import load_model
from aem.paper.plane.config import experiment
from tests.support.running import run

TINY = (
    "task.train_rows=2000",
    "task.validation_rows=100",
    "task.test_rows=50",
    "train.steps=20",
    "train.validate_every=10",
    "model.hidden=16",
    "model.energy_hidden=16",
)


def settings(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["spirals", "--preset", "nope"], "nope"),
        (["spirals", *settings("train.stepz=3")], "train.stepz"),
        (["spirals", *settings("nonsense=3")], "nonsense"),
        (["spirals", *settings("train.steps=many")], "train.steps"),
        (["spirals", *settings("train.steps")], "train.steps"),
        (["spirals", *settings("train.steps=0")], "steps"),
        (["spirals", *settings("train.device=abacus")], "abacus"),
        (["spirals", *settings("model.hidden=1")], "hidden width 1"),
        (["spirals", *settings("task.train_rows=5")], "5 rows"),
        (["spirals", "--config", "missing.toml"], "missing.toml"),
        (["image", "--image", "missing.png"], "missing.png"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    culprit: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "reproduce", *arguments, "--out", "out") == 2
    error = capsys.readouterr().err
    assert culprit in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir()), "nothing half-written"


def test_output_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(monkeypatch, "reproduce", "spirals", "--out", str(tmp_path / "file" / "out")) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


@pytest.mark.parametrize("task", ["spirals", "checkerboard", "diamond", "image"])
def test_reproduce_writes_everything(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / task
    monkeypatch.setattr("aem.paper.plane.run.PICTURE_SAMPLES", {"cpu": 500, "cuda": 500})
    assert run(monkeypatch, "reproduce", task, "--out", str(out), "--quiet", *settings(*TINY)) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    for key in ("task", "preset", "command", "config", "seed", "device", "commit", "seconds"):
        assert key in metrics
    assert metrics["steps"] == 20
    # A mean over the same rows: the gap and the likelihood must tell the same story.
    assert abs(metrics["limit"] - metrics["test_log_prob"] - metrics["gap"]) < 1.0
    assert metrics["gap"] > 0
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    model = load_model(out / "model.aem")
    assert torch.isfinite(model().log_prob(torch.tensor([[0.3, 0.4]]))).all()
    # Other commands open the model.
    file, drawn, page = (str(out / n) for n in ("model.aem", "drawn.csv", "page.html"))
    assert run(monkeypatch, "sample", file, "-n", "30", "--out", drawn) == 0
    assert run(monkeypatch, "score", file, drawn, "--explain", "--out", str(out / "why.csv")) == 0
    assert run(monkeypatch, "report", file, drawn, "--out", page) == 0
    few = ("--rows", "20", "--samples", "0", "--kde-samples", "0")
    assert run(monkeypatch, "evaluate", file, task, *few) == 0
    # What ran is written beside the result, and can be run again.
    again = tmp_path / "again"
    config = str(out / "config.toml")
    assert (
        run(monkeypatch, "reproduce", task, "--out", str(again), "--quiet", "--config", config) == 0
    )
    repeated = json.loads((again / "metrics.json").read_text())
    assert repeated["test_log_prob"] == metrics["test_log_prob"]


@pytest.mark.parametrize("preset", ["fast", "paper", "best"])
@pytest.mark.parametrize("task", ["spirals", "checkerboard", "diamond", "image"])
def test_presets_are_valid(task: str, preset: str) -> None:
    config = experiment(task, preset)
    assert config.task.name == task
    if preset == "paper":  # table 3 of the paper
        assert (config.model.hidden, config.model.blocks, config.model.gamma) == (256, 4, 64)
        assert (config.model.energy_hidden, config.model.energy_blocks) == (128, 4)
        assert (config.train.batch_size, config.train.learning_rate) == (256, 5e-4)
        assert config.train.steps == (3_000_000 if task == "image" else 400_000)
        assert config.train.warmup == (5_000 if task == "spirals" else 0)
        assert config.model.energy == "literal"
        assert config.model.frequencies == 0
