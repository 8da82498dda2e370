import copy
import itertools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from aem import AEM, AemError, ModelConfig, TrainConfig
from aem.estimation import Estimator
from aem.io import read_tensors
from aem.training import fit, loop, steps
from aem.training.checkpoint import Progress
from aem.training.loop import validation_scores
from aem.training.schedule import averaging_decay

Table = NDArray[np.float64]

TINY = ModelConfig(
    hidden=16,
    blocks=1,
    gamma=4,
    energy_hidden=16,
    energy_blocks=1,
    components=3,
    frequencies=2,
    dropout=0.1,
    energy_dropout=0.1,
)
SHORT = TrainConfig(
    steps=24,
    batch_size=16,
    nodes=4,
    validate_every=5,
    averaging=0.9,
    warmup=3,
    device="cpu",
    checkpoint_seconds=0.0,
)


def ring(rows: int, seed: int = 0) -> Table:
    """Two columns on a ring of radius two, in odd units."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.random(rows) * 2 * np.pi, rng.normal(2, 0.2, rows)
    return np.stack((radius * np.cos(angle) * 30 + 7, radius * np.sin(angle)), 1)


TRAIN, VALIDATION = ring(150, 0), ring(50, 1)


def fresh(config: ModelConfig = TINY, data: Table = TRAIN, context: Table | None = None) -> AEM:
    torch.manual_seed(5)
    return AEM.for_data(config, data, context)


def run(config: TrainConfig = SHORT, folder: Path | None = None, **kw: Any) -> tuple[AEM, Progress]:
    model = fresh()
    return model, fit(model, TRAIN, VALIDATION, config, folder=folder, quiet=True, **kw)


def assert_same(a: tuple[AEM, Progress], b: tuple[AEM, Progress]) -> None:
    """The same weights and the same history, bit for bit (but for the seconds it took)."""
    for name, tensor in a[0].state_dict().items():
        assert torch.equal(tensor, b[0].state_dict()[name]), name
    first, second = ([{**h, "seconds": 0} for h in p.history] for _, p in (a, b))
    assert first == second
    assert (a[1].step, a[1].best_step, a[1].best_score) == (
        b[1].step,
        b[1].best_step,
        b[1].best_score,
    )


@pytest.fixture(scope="module")
def uninterrupted() -> tuple[AEM, Progress]:
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
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    return replace(SHORT, checkpoint_seconds=ticks)


# --- training trains ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"energy": "literal"},
        {"proposal": "uniform", "bounds": ((-90.0, 100.0), (-4.0, 4.0))},
    ],
    ids=["relative", "literal", "uniform"],
)
def test_a_short_run_improves_validation(settings: dict[str, Any]) -> None:
    model = fresh(
        ModelConfig(**{**TINY.__dict__, "dropout": 0.0, "energy_dropout": 0.0, **settings})
    )
    estimator: Estimator = "importance" if settings.get("energy") == "literal" else "ranking"
    config = TrainConfig(
        steps=150, batch_size=64, nodes=8, validate_every=50, averaging=0.9, warmup=10,
        learning_rate=5e-3, device="cpu", estimator=estimator,
    )  # fmt: skip
    z = model.standardise(torch.from_numpy(VALIDATION)).float()
    before, _ = validation_scores(model.eval(), z, None)
    progress = fit(model, ring(2000), VALIDATION, config, quiet=True)
    assert progress.best_score > before + 0.3
    scores = [h["validation_log_prob"] for h in progress.history]
    assert progress.best_score == max(scores)
    assert [h["step"] for h in progress.history] == [50, 100, 150]


def test_context_is_learnt() -> None:
    """x = c + a little noise: with c its entropy is log σ√(2πe), without it 1.4 nats more."""
    rng = np.random.default_rng(0)
    c = rng.normal(3, 10, size=(1000, 1))
    x = c + 2 * rng.normal(size=(1000, 1))
    model = fresh(replace(TINY, dropout=0.0, energy_dropout=0.0), x, c)
    config = TrainConfig(
        steps=200, batch_size=64, nodes=8, validate_every=100, averaging=0.9, learning_rate=1e-2,
        device="cpu",
    )  # fmt: skip
    progress = fit(
        model, x[:800], x[800:], config, context=c[:800], validation_context=c[800:], quiet=True
    )
    without = -math.log(math.hypot(10, 2) * math.sqrt(2 * math.pi * math.e))
    assert progress.best_score > without + 1


def test_validation_is_in_the_units_of_the_data_and_close_to_exact() -> None:
    model = fresh().eval()
    z = model.standardise(torch.from_numpy(VALIDATION)).float()
    score, proposal = validation_scores(model, z, None)
    exact = model().scores(torch.from_numpy(VALIDATION))
    assert score == pytest.approx(float(exact.log_prob.sum(-1).mean()), abs=1e-2)
    assert proposal == pytest.approx(float(exact.log_proposal.sum(-1).mean()), abs=1e-5)
    assert (score, proposal) == validation_scores(model, z, None), "repeatable"
    assert (score, proposal) == pytest.approx(validation_scores(model, z, None, block=7), abs=1e-2)


def test_seeds_decide() -> None:
    (same, _), (again, _), (other, _) = run(), run(), run(replace(SHORT, seed=1))
    weights = [m.arnn.final.weight for m in (same, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_run_leaves_the_callers_random_numbers_alone() -> None:
    model = fresh()
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    fit(model, TRAIN, VALIDATION, SHORT, quiet=True)
    assert torch.equal(torch.rand(3), expected)


def test_dropout_is_on_in_steps_and_off_in_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: dict[str, set[bool]] = {"step": set(), "validation": set()}
    objective, scores = steps.objective, loop.validation_scores

    def watch_step(model: AEM, *args: Any, **kw: Any) -> Tensor:
        modes["step"] |= {m.training for m in model.modules()}
        return objective(model, *args, **kw)

    def watch_validation(model: AEM, *args: Any) -> tuple[float, float]:
        modes["validation"] |= {m.training for m in model.modules()}
        return scores(model, *args)

    monkeypatch.setattr(steps, "objective", watch_step)
    monkeypatch.setattr(loop, "validation_scores", watch_validation)
    model, _ = run()
    assert modes == {"step": {True}, "validation": {False}}
    assert not model.training


def test_warm_up_trains_the_proposal_alone() -> None:
    model = fresh(replace(TINY, dropout=0.0))
    before = copy.deepcopy(model)
    config = replace(SHORT, steps=8, warmup=8, averaging=0.0, validate_every=8)
    fit(model, TRAIN, VALIDATION, config, quiet=True)
    for name, parameter in model.named_parameters():
        kept = torch.equal(parameter, before.get_parameter(name))
        assert kept == name.startswith("energy."), name


# --- one step -------------------------------------------------------------------------------------


@dataclass
class Bench:
    model: AEM
    average: AEM
    optimiser: torch.optim.Optimizer
    step: steps.EagerStep

    def __call__(self, number: int) -> None:
        self.step(number, torch.arange(16))


def bench(config: TrainConfig) -> Bench:
    model = fresh().train()
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimiser = steps.make_optimiser(model, config, torch.device("cpu"))
    rows = model.standardise(torch.from_numpy(TRAIN)).float()
    step = steps.EagerStep(model, average, optimiser, config, rows, None)
    return Bench(model, average, optimiser, step)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_average_is_the_average_of_the_weights(decay: float) -> None:
    training = bench(replace(SHORT, averaging=decay))
    expected = {k: v.clone() for k, v in training.model.named_parameters()}
    for number in range(12):
        training(number)
        keep = averaging_decay(number, decay)
        for name, parameter in training.model.named_parameters():
            expected[name] = keep * expected[name] + (1 - keep) * parameter.detach()
    for name, parameter in training.average.named_parameters():
        torch.testing.assert_close(parameter, expected[name], rtol=1e-5, atol=1e-6)


def test_gradients_are_clipped_and_the_last_rate_is_nearly_zero() -> None:
    training = bench(replace(SHORT, clip=0.01))
    training(23)
    grads = [p.grad for p in training.model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    assert norm <= 0.01 * (1 + 1e-4)
    free = bench(replace(SHORT, clip=0.0))
    free(23)
    grads = [p.grad for p in free.model.parameters() if p.grad is not None]
    assert torch.nn.utils.get_total_norm(grads) > 0.1
    (group,) = free.optimiser.param_groups
    assert group["lr"] == pytest.approx(1e-3 * 0.5 * (1 + math.cos(math.pi * 23 / 24)))


# --- stopping early -------------------------------------------------------------------------------


def test_early_stopping_restores_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation is best the second time, then falls: three validations later the run ends."""
    scores: Iterator[float] = iter([-3.0, -2.0, -2.5, -2.1, -2.0, -1.0, -1.0])
    averages: list[dict[str, Tensor]] = []

    def scripted(model: AEM, *_: object) -> tuple[float, float]:
        averages.append({k: v.clone() for k, v in model.state_dict().items()})
        return next(scores), 0.0

    monkeypatch.setattr(loop, "validation_scores", scripted)
    model, progress = run(replace(SHORT, steps=1000, validate_every=4, patience=3))
    assert (progress.step, progress.best_step, progress.best_score) == (20, 8, -2.0)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, averages[1][name])
    assert not torch.equal(model.arnn.final.weight, averages[-1]["arnn.final.weight"])


def test_best_score_is_that_of_the_weights_left_in_the_model() -> None:
    model, few = fresh(), TRAIN[:12]
    config = replace(SHORT, learning_rate=0.05, steps=60, averaging=0.0)
    progress = fit(model, few, VALIDATION, config, quiet=True)
    assert progress.best_step < 60, "the test needs a run that gets worse"
    z = torch.from_numpy((VALIDATION - model.shift.double().numpy()) / model.scale.double().numpy())
    assert validation_scores(model, z.float(), None)[0] == progress.best_score


# --- killed and resumed ---------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [0, 1, 4, 5, 13, 23])
def test_a_killed_run_ends_with_the_same_bits(
    uninterrupted: tuple[AEM, Progress],
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
    uninterrupted: tuple[AEM, Progress], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    uninterrupted: tuple[AEM, Progress], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes in the middle of a step, when weights and random numbers are half-way."""
    with monkeypatch.context() as patch:
        kill_at(patch, 10, after=True, kind=KeyboardInterrupt)
        with pytest.raises(AemError, match=f"interrupted at step 10; .* go on from {tmp_path}"):
            run(folder=tmp_path)
    assert_same(run(folder=tmp_path), uninterrupted)


def test_a_finished_run_is_not_run_again(
    uninterrupted: tuple[AEM, Progress], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder=tmp_path)
    kill_at(monkeypatch, 0, after=False)
    assert_same(run(folder=tmp_path), uninterrupted)


SCRIPT = """
import sys, torch
torch.set_num_threads(1)
sys.path[:0] = {paths!r}
from training.test_loop import run
run(folder=__import__("pathlib").Path({folder!r}), config={config})
"""


def test_a_process_killed_by_the_system_resumes(tmp_path: Path) -> None:
    config = replace(SHORT, steps=150, validate_every=40)
    tests = str(Path(__file__).parents[1])
    script = SCRIPT.format(
        paths=[tests], folder=str(tmp_path / "run"), config=f"__import__('aem').{config!r}"
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
    uninterrupted: tuple[AEM, Progress], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(patch, 8, after=True)
        with pytest.raises(Killed):
            run(folder=tmp_path)
    assert_same(run(replace(SHORT, device="auto", checkpoint_seconds=60), tmp_path), uninterrupted)


# --- what goes wrong ------------------------------------------------------------------------------


def explode(monkeypatch: pytest.MonkeyPatch, at: int, how: Callable[[Tensor, AEM], Tensor]) -> None:
    objective, calls = steps.objective, itertools.count(1)

    def exploding(model: AEM, *args: Any, **kw: Any) -> Tensor:
        loss = objective(model, *args, **kw)
        return how(loss, model) if next(calls) == at else loss

    monkeypatch.setattr(steps, "objective", exploding)


def infinite_slope(loss: Tensor, model: AEM) -> Tensor:
    """A finite loss whose gradient is not."""
    return loss + (0 * model.energy.final.weight).sqrt().sum()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda loss, _: loss * math.nan, "the loss became nan at step 14"),
        (lambda loss, _: loss + math.inf, "the loss became inf at step 14"),
        (infinite_slope, "the weights stopped being finite at step 14"),
    ],
    ids=["nan", "inf", "slope"],
)
def test_an_exploding_run_stops_and_keeps_the_last_good_checkpoint(
    uninterrupted: tuple[AEM, Progress],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[Tensor, AEM], Tensor],
    message: str,
) -> None:
    checkpoint = tmp_path / "checkpoint.safetensors"
    with monkeypatch.context() as patch:
        explode(patch, 14, how)
        expected = (
            f"{message}; the last good checkpoint is {checkpoint}; try a smaller learning rate"
        )
        with pytest.raises(AemError, match=expected):
            run(folder=tmp_path)
    tensors, metadata = read_tensors(checkpoint, "checkpoint")
    assert metadata["progress"]["step"] == 13
    assert all(t.isfinite().all() for t in tensors.values())
    assert_same(run(folder=tmp_path), uninterrupted)


def test_an_explosion_without_a_folder_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    explode(monkeypatch, 2, lambda loss, _: loss * math.nan)
    with pytest.raises(AemError, match="at step 2; no checkpoint was written; try"):
        run()


BAD_VALUE = np.where(np.arange(300).reshape(150, 2) == 9, np.nan, TRAIN)


@pytest.mark.parametrize(
    ("train", "validation", "message"),
    [
        (BAD_VALUE, VALIDATION, "column 'x2' of the training data has NaN in row 4"),
        (TRAIN, VALIDATION[:, :1], "the validation data has 1 columns, the model has 2"),
        (TRAIN[:0], VALIDATION, "the training data has no rows"),
        (TRAIN, VALIDATION[:0], "the validation data has no rows"),
    ],
)
def test_bad_rows_are_refused(train: Table, validation: Table, message: str) -> None:
    with pytest.raises(AemError, match=message):
        fit(fresh(), train, validation, SHORT, quiet=True)


def test_rows_outside_a_uniform_proposal_are_refused() -> None:
    bounds = ((-200.0, 200.0), (-1.0, 4.0))
    model = fresh(replace(TINY, proposal="uniform", bounds=bounds))
    with pytest.raises(AemError, match=r"column 'x2' of the training data .* bounds -1.0 … 4.0"):
        fit(model, TRAIN, VALIDATION, SHORT, quiet=True)


def test_contexts_must_fit_the_rows() -> None:
    model = fresh(context=np.random.default_rng(0).normal(size=(150, 2)))
    with pytest.raises(AemError, match="the context has 149 rows, the data 150"):
        fit(model, TRAIN, VALIDATION, SHORT, quiet=True, context=np.zeros((149, 2)))
    with pytest.raises(AemError, match="needs a context of 2"):
        fit(model, TRAIN, VALIDATION, SHORT, quiet=True)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("abacus", "unknown device 'abacus'"),
        pytest.param(
            "cuda",
            "no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_devices_that_are_not_there_are_refused(device: str, message: str) -> None:
    with pytest.raises(AemError, match=message):
        run(replace(SHORT, device=device))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        AemError, match=f"cannot write to {tmp_path}/file/run: a file is in the way"
    ):
        run(folder=tmp_path / "file" / "run")
    assert os.listdir(tmp_path) == ["file"]
