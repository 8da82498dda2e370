"""Killed and resumed, a run ends as if it had not been."""

import itertools
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from aem import AEM, AemError, TrainConfig
from aem.base.files import read_tensors
from aem.training import fit, steps, trainer
from aem.training.checkpoint import TrainingState
from tests.support.short_runs import SHORT, TINY, TRAIN, VALIDATION, assert_same, fresh, run


@pytest.fixture(scope="module")
def uninterrupted() -> tuple[AEM, TrainingState]:
    return run()


class Killed(BaseException):
    """What no handler catches."""


def kill_at(
    monkeypatch: pytest.MonkeyPatch, step: int, *, after: bool, kind: type[BaseException] = Killed
) -> None:
    """Die in the step with this number, before or after it has changed the weights."""
    original = steps.EagerStep.__call__

    def dying(self: steps.EagerStep, number: int, indices: Tensor) -> Tensor:
        if number != step:
            return original(self, number, indices)
        if after:
            original(self, number, indices)
        else:
            torch.rand(7)  # half a step has drawn some of its random numbers
        raise kind

    monkeypatch.setattr(steps.EagerStep, "__call__", dying)


def checkpoint_every(monkeypatch: pytest.MonkeyPatch, ticks: float) -> TrainConfig:
    """A clock that ticks when it is read, so that checkpoints come at steps we know."""
    clock = itertools.count()
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    return replace(SHORT, checkpoint_seconds=ticks)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [0, 1, 4, 5, 13, 23])
def test_a_killed_run_ends_with_the_same_bits(
    uninterrupted: tuple[AEM, TrainingState],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    after: bool,
) -> None:
    with monkeypatch.context() as patch:
        kill_at(patch, step, after=after)
        with pytest.raises(Killed):
            run(folder=tmp_path)
    assert (tmp_path / "checkpoint.safetensors").exists() == (step > 0)
    assert_same(run(folder=tmp_path), uninterrupted)


def test_a_run_killed_again_and_again_between_checkpoints(
    uninterrupted: tuple[AEM, TrainingState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints come every few steps, so that each death loses work that must be done again."""
    for step in (2, 9, 9, 10, 17, 22):
        with monkeypatch.context() as patch:
            config = checkpoint_every(patch, 5)
            kill_at(patch, step, after=True)
            with pytest.raises(Killed):
                run(config, tmp_path)
    assert_same(run(folder=tmp_path), uninterrupted)


def test_an_interrupted_run_says_how_to_go_on_and_does(
    uninterrupted: tuple[AEM, TrainingState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes in the middle of a step, when weights and random numbers are half-way."""
    with monkeypatch.context() as patch:
        kill_at(patch, 10, after=True, kind=KeyboardInterrupt)
        with pytest.raises(AemError, match=f"interrupted at step 10; .* go on from {tmp_path}"):
            run(folder=tmp_path)
    assert_same(run(folder=tmp_path), uninterrupted)


def test_a_finished_run_is_not_run_again(
    uninterrupted: tuple[AEM, TrainingState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder=tmp_path)
    kill_at(monkeypatch, 0, after=False)
    assert_same(run(folder=tmp_path), uninterrupted)


SCRIPT = """
import sys, torch
torch.set_num_threads(1)
sys.path[:0] = {paths!r}
from tests.training.test_loop import run
run(folder=__import__("pathlib").Path({folder!r}), config={config})
"""


def test_a_process_killed_by_the_system_resumes(tmp_path: Path) -> None:
    config = replace(SHORT, steps=150, validate_every=40)
    root = str(Path(__file__).parents[2])
    script = SCRIPT.format(
        paths=[root], folder=str(tmp_path / "run"), config=f"__import__('aem').{config!r}"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)  # somewhere among the next steps and checkpoints
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    _, metadata = read_tensors(checkpoint, "checkpoint")
    assert 0 < metadata["progress"]["step"] < 150
    assert_same(run(config, tmp_path / "run"), run(config))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(SHORT, learning_rate=1e-2), "learning_rate = 0.001, this run asks for 0.01"),
        (replace(SHORT, seed=3), "seed = 0, this run asks for 3"),
        (replace(SHORT, steps=48), "steps = 24, this run asks for 48"),
    ],
)
def test_checkpoints_of_other_settings_are_refused(
    tmp_path: Path, config: TrainConfig, message: str
) -> None:
    run(folder=tmp_path)
    with pytest.raises(AemError, match=message):
        run(config, tmp_path)


def test_checkpoints_of_other_models_and_data_are_refused(tmp_path: Path) -> None:
    run(folder=tmp_path)
    with pytest.raises(AemError, match="model of other settings"):
        fit(fresh(replace(TINY, hidden=17)), TRAIN, VALIDATION, SHORT, folder=tmp_path, quiet=True)
    moved = TRAIN + 1
    with pytest.raises(AemError, match="was made with other data"):
        fit(fresh(data=moved), moved, VALIDATION, SHORT, folder=tmp_path, quiet=True)


def test_where_and_how_often_to_save_may_change(
    uninterrupted: tuple[AEM, TrainingState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(patch, 8, after=True)
        with pytest.raises(Killed):
            run(folder=tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # a GPU rounds otherwise
    assert_same(run(replace(SHORT, device="auto", checkpoint_seconds=60), tmp_path), uninterrupted)
