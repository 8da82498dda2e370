"""Stages learn, stop and go on."""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aem import AEM, ModelConfig
from aem.errors import AemError
from aem.paper.vae.config import NetworkConfig, StageConfig
from aem.paper.vae.images import Images
from aem.paper.vae.networks import ConvolutionalVae
from aem.paper.vae.stages.latent import LatentModel
from aem.paper.vae.stages.steps import StagePhase, StageStep, phase_of
from aem.paper.vae.stages.training import train_stage
from aem.training.steps import GraphStep

STAGE = StageConfig(
    steps=8,
    batch_size=8,
    learning_rate=5e-3,
    averaging=0.5,
    validate_every=4,
    device="cpu",
    checkpoint_seconds=0.0,
)
PRIOR = ModelConfig(
    features=3, hidden=8, blocks=1, gamma=4, energy_hidden=8, components=2, frequencies=0
)


def fresh(network: NetworkConfig, *, prior: bool = False) -> LatentModel:
    torch.manual_seed(5)
    return LatentModel(ConvolutionalVae(network), AEM(PRIOR) if prior else None)


def test_training_raises_the_bound(network: NetworkConfig, images: Images) -> None:
    config = replace(STAGE, steps=40, validate_every=20)
    model = fresh(network)
    progress = train_stage(model, images, config, quiet=True)
    first, last = progress.history[0], progress.history[-1]
    assert last["validation_elbo"] > first["validation_elbo"] + 5
    assert last["validation_bound"] >= last["validation_elbo"]
    assert progress.best_score == max(h["validation_score"] for h in progress.history)
    assert not model.training


@pytest.mark.parametrize("joint", [False, True])
def test_a_killed_run_ends_as_if_it_had_not_been(
    joint: bool,
    network: NetworkConfig,
    images: Images,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = STAGE
    if joint:
        config = replace(STAGE, samples=2, beta=1.0, prior_warmup=2, augment=1.0)
    whole = fresh(network, prior=joint)
    train_stage(whole, images, config, quiet=True)

    original, calls = StageStep.run, itertools.count(1)

    def stopping(self: StageStep, indices: torch.Tensor, phase: StagePhase) -> torch.Tensor:
        if next(calls) == 6:
            raise KeyboardInterrupt
        return original(self, indices, phase)

    monkeypatch.setattr(StageStep, "run", stopping)
    with pytest.raises(AemError, match="interrupted at step 5; run the same command again"):
        train_stage(fresh(network, prior=joint), images, config, folder=tmp_path, quiet=True)
    monkeypatch.setattr(StageStep, "run", original)
    resumed = fresh(network, prior=joint)
    progress = train_stage(resumed, images, config, folder=tmp_path, quiet=True)
    assert progress.step == 8
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_a_checkpoint_of_other_settings_is_refused(
    network: NetworkConfig, images: Images, tmp_path: Path
) -> None:
    config = replace(STAGE, steps=2)
    train_stage(fresh(network), images, config, folder=tmp_path, quiet=True)
    with pytest.raises(AemError, match=r"made with beta = 0\.9, this run asks for 0\.5"):
        train_stage(fresh(network), images, replace(config, beta=0.5), folder=tmp_path, quiet=True)
    other = replace(network, latents=4)
    with pytest.raises(AemError, match="other settings"):
        train_stage(fresh(other), images, config, folder=tmp_path, quiet=True)


def test_a_stage_may_begin_in_its_middle(network: NetworkConfig, images: Images) -> None:
    """With the rates of the steps it takes, from the weights it is given."""
    model = fresh(network)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    progress = train_stage(model, images, replace(STAGE, start=6), quiet=True)
    assert [h["step"] for h in progress.history] == [8]
    largest = max(
        float((value - before[name]).abs().max()) for name, value in model.state_dict().items()
    )
    assert 0 < largest < STAGE.learning_rate, "the last two of eight steps are small ones"


def test_a_run_that_stopped_early_is_finished(
    network: NetworkConfig, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stage two is fitted to must be what is found when the run is started again."""
    config = replace(
        STAGE, steps=200, learning_rate=1e-9, validate_every=2, patience=3, checkpoint_seconds=1e9
    )
    first = fresh(network)
    progress = train_stage(first, images, config, folder=tmp_path, quiet=True)
    assert progress.step < 200
    monkeypatch.setattr(StageStep, "run", None)
    second = fresh(network)
    again = train_stage(second, images, config, folder=tmp_path, quiet=True)
    assert again.step == progress.step
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_an_explosion_is_told(network: NetworkConfig, images: Images) -> None:
    with pytest.raises(AemError, match=r"at step \d+; no checkpoint was written; try a smaller"):
        train_stage(fresh(network), images, replace(STAGE, learning_rate=1e30), quiet=True)


def test_phases_follow_the_settings() -> None:
    config = StageConfig(steps=10, prior_warmup=2, augment=1.0, augment_until=0.5)
    assert [phase_of(step, config) for step in (0, 1, 2, 4, 5, 9)] == [
        StagePhase(True, True),
        StagePhase(True, True),
        StagePhase(False, True),
        StagePhase(False, True),
        StagePhase(False, False),
        StagePhase(False, False),
    ]
    assert phase_of(0, StageConfig()) == StagePhase(False, False)


def test_compiled_blocks_are_the_same_module(
    network: NetworkConfig, images: Images, compiled_calls: Callable[[], int]
) -> None:
    """Compiled while it trains, as if it had never been afterwards."""
    plain, compiled = fresh(network), fresh(network)
    train_stage(plain, images, STAGE, quiet=True)
    train_stage(compiled, images, replace(STAGE, compiled=True), quiet=True)
    assert compiled_calls() == 2 * STAGE.steps, (
        "encoder and decoder; validation takes the plain ones"
    )
    compiled.vae.logits(torch.zeros(1, 3))
    assert compiled_calls() == 2 * STAGE.steps
    for name, value in plain.state_dict().items():
        assert torch.equal(value, compiled.state_dict()[name]), name


COMPILED = """
import sys, torch
from aem.paper.vae.config import NetworkConfig, StageConfig
from aem.paper.vae.images import Images
from aem.paper.vae.stages.latent import LatentModel
from aem.paper.vae.networks import ConvolutionalVae
from aem.paper.vae.stages.training import train_stage
torch.set_num_threads(1)
torch.manual_seed(0)
images = Images(*((255 * torch.rand(n, 28, 28)).to(torch.uint8) for n in (40, 12, 1)))
for compiled in (False, True):
    torch.manual_seed(1)
    model = LatentModel(ConvolutionalVae(NetworkConfig(latents=3, channels=2)))
    config = StageConfig(
        steps=6, batch_size=8, validate_every=6, learning_rate=5e-3, device="cpu", compiled=compiled
    )
    print(train_stage(model, images, config, quiet=True).history[-1]["validation_elbo"])
"""


@pytest.mark.slow
def test_compiled_steps_train_as_plain_ones() -> None:
    """In a process of its own: shape checks do not know what a compiler passes around."""
    command = [sys.executable, "-c", COMPILED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    plain, compiled = map(float, done.stdout.split())
    assert math.isclose(plain, compiled, rel_tol=1e-4)
    assert "recompile_limit" not in done.stderr


ALONE = replace(
    STAGE,
    steps=40,
    batch_size=16,
    learning_rate=2e-3,
    averaging=0.99,
    beta_warmup=30,
    clip=200.0,
    validate_every=40,
)
TOGETHER = replace(ALONE, samples=4, beta_warmup=0, prior_warmup=8, augment=3.0, augment_until=0.75)


def distance(model: LatentModel, other: LatentModel) -> float:
    """How far apart a weight of two models usually is, where they differ at all.

    The median, as Adam's first steps follow the sign of a gradient, which rounding may turn.
    """
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    apart = torch.cat([(a.detach().cpu() - b.detach().cpu()).abs().flatten() for a, b in pairs])
    return float(apart[apart > 0].median()) if apart.any() else 0.0


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("joint", "compiled"),
    [(False, False), (False, True), (True, False)],
    ids=["stage one", "stage one, compiled", "joint"],
)
def test_a_captured_step_trains_as_an_eager_one(
    joint: bool, compiled: bool, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights to rounding: a graph must see each step's rate, β, average, strength and noise.

    On one device a replay draws the numbers that an eager step would have drawn. Another device draws
    others, and then so short a training ends tens of nats away.
    """
    network = NetworkConfig(latents=3, channels=4, dropout=0.0 if compiled else 0.1)
    config = replace(
        TOGETHER if joint else ALONE, device="cuda", precision="float32", compiled=compiled
    )
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    captured, eager = fresh(network, prior=joint), fresh(network, prior=joint)
    found = train_stage(captured, images, config, quiet=True)
    monkeypatch.setattr("aem.paper.vae.stages.training.captured_on_gpu", lambda step, device: step)
    expected = train_stage(eager, images, config, quiet=True)
    assert math.isclose(found.history[-1]["loss"], expected.history[-1]["loss"], rel_tol=1e-3)
    # Any of these frozen in the graph would show five times as much, rounding a thirtieth of it.
    assert distance(captured, eager) < 1e-3 * distance(eager, fresh(network, prior=joint))


@pytest.mark.gpu
def test_a_captured_joint_stage_warms_up_stops_and_goes_on(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three graphs, dropout, deformed images, a bound of several samples, bfloat16, killed once."""
    network = NetworkConfig(latents=3, channels=4, dropout=0.1, activation="silu")
    config = replace(
        STAGE,
        steps=60,
        samples=4,
        beta=1.0,
        prior_warmup=20,
        augment=1.0,
        clip=200.0,
        device="cuda",
    )
    model = fresh(network, prior=True)
    before = {k: v.clone() for k, v in model.vae.state_dict().items()}
    original, calls = GraphStep.__call__, 0

    def stopping(self: GraphStep, step: int, indices: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 16:
            raise KeyboardInterrupt
        return original(self, step, indices)

    monkeypatch.setattr(GraphStep, "__call__", stopping)
    with pytest.raises(AemError, match="interrupted at step 15"):
        train_stage(model, images, config, folder=tmp_path, quiet=True)
    for name, value in model.vae.state_dict().items():
        assert torch.equal(value.cpu(), before[name]), f"{name} moved while the prior warmed up"
    monkeypatch.setattr(GraphStep, "__call__", original)
    resumed = fresh(network, prior=True)
    progress = train_stage(resumed, images, config, folder=tmp_path, quiet=True)
    assert progress.step == 60
    first, last = progress.history[0], progress.history[-1]
    assert last["validation_bound"] > first["validation_bound"]
