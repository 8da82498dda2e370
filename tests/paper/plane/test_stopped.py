"""A run with the paper's settings that was stopped goes on when the same command is given again."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from aem.model.files import load_model

SMALL = (
    "task.train_rows=3000", "task.validation_rows=100", "task.test_rows=40", "model.hidden=16",
    "model.energy_hidden=16", "train.steps=200", "train.warmup=20", "train.validate_every=50",
    "train.checkpoint_seconds=0", "evaluate.samples=200", "evaluate.grid=16",
    "evaluate.importance_samples=20",
)  # fmt: skip


def command(folder: Path) -> list[str]:
    """`aem reproduce spirals --preset paper`, small."""
    settings = [word for setting in SMALL for word in ("--set", setting)]
    start = [sys.executable, "-m", "aem.cli", "reproduce", "spirals", "--preset", "paper"]
    return [*start, "--out", str(folder), "--quiet", *settings]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run(command(folder), check=True)
    return folder


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_stopped_run_goes_on_bit_for_bit(
    sign: signal.Signals, whole: Path, tmp_path: Path
) -> None:
    stopped = tmp_path / "stopped"
    process = subprocess.Popen(command(stopped), stderr=subprocess.PIPE, text=True)
    checkpoint = stopped / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(sign)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "run the same command again to go on" in said
    assert not (stopped / "metrics.json").exists()
    subprocess.run(command(stopped), check=True)
    weights, expected = (load_model(f / "model.aem").state_dict() for f in (stopped, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    for name in ("density.npz", "figure.png"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes(), name
    first, second = (json.loads((f / "metrics.json").read_text()) for f in (stopped, whole))
    for key in first.keys() - {"command", "seconds", "evaluation_seconds", "training"}:
        assert first[key] == second[key], key
