"""Training trains, and leaves the best averaged weights."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aem import AEM, ModelConfig, TrainConfig
from aem.conditionals.estimates import Estimator
from aem.errors import Interrupted
from aem.training import fit, loop
from aem.training import objective as step
from aem.training.loop import validation_scores
from aem.training.objective import DensityStep
from aem.training.optimizer import Descent
from aem.training.schedule import averaging_decay
from tests.support.short_runs import SHORT, TINY, TRAIN, VALIDATION, assert_same, fresh, ring, run


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


def test_validation_is_in_the_units_of_the_data_and_close_to_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = fresh().eval()
    z = model.standardise(torch.from_numpy(VALIDATION)).float()
    score, proposal = validation_scores(model, z, None)
    exact = model().scores(torch.from_numpy(VALIDATION))
    assert score == pytest.approx(float(exact.log_prob.sum(-1).mean()), abs=1e-2)
    assert proposal == pytest.approx(float(exact.log_proposal.sum(-1).mean()), abs=1e-5)
    assert (score, proposal) == validation_scores(model, z, None), "repeatable"
    monkeypatch.setitem(loop.VALIDATED_TOGETHER, "cpu", 7)
    assert (score, proposal) == pytest.approx(validation_scores(model, z, None), abs=1e-2)


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
    objective, scores = step.objective, loop.validation_scores

    def watch_step(model: AEM, *args: Any, **kw: Any) -> Tensor:
        modes["step"] |= {m.training for m in model.modules()}
        return objective(model, *args, **kw)

    def watch_validation(model: AEM, *args: Any, **kw: Any) -> tuple[float, float]:
        modes["validation"] |= {m.training for m in model.modules()}
        return scores(model, *args, **kw)

    monkeypatch.setattr(step, "objective", watch_step)
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
    descent: Descent
    step: DensityStep

    def __call__(self, number: int) -> None:
        self.step(number, torch.arange(16))


def bench(config: TrainConfig) -> Bench:
    model = fresh().train()
    average = copy.deepcopy(model).eval().requires_grad_(False)
    descent = Descent(model, average, config)
    rows = model.standardise(torch.from_numpy(TRAIN)).float()
    step = DensityStep(model, descent, config, rows, None)
    return Bench(model, average, descent, step)


def test_the_energys_share_rises_in_a_linear_warm_up() -> None:
    """Its gradient with it, while the proposal's is the same from the first step."""
    config = replace(SHORT, warmup=8, warmup_linear=True)
    model = fresh(replace(TINY, dropout=0.0, energy_dropout=0.0)).train()
    z = model.standardise(torch.from_numpy(TRAIN[:32]))
    descent = Descent(model, copy.deepcopy(model), config)
    density = step.DensityStep(model, descent, config, z, None)
    energy, proposal = [], []
    for number in (0, 2, 6, 8, 20):
        density.set_schedule(number)
        torch.manual_seed(3)
        loss = step.objective(model, z, None, config, density.phase(number), density.share)
        first_layer = [
            p for name, p in model.arnn.named_parameters() if name.startswith("initial.")
        ]
        own = list(model.energy.parameters()), first_layer
        first, second = (torch.autograd.grad(loss, some, retain_graph=True) for some in own)
        energy.append(torch.cat([g.flatten() for g in first]))
        proposal.append(torch.cat([g.flatten() for g in second]))
    descent.release()
    assert not energy[0].any() and bool(energy[-1].any())
    for share, gradient in zip((0.25, 0.75, 1.0), energy[1:], strict=False):
        torch.testing.assert_close(gradient, share * energy[-1])
    # Its part of γ comes and goes with the energy: the first layer's gradient is linear in the share.
    torch.testing.assert_close(proposal[1], 0.75 * proposal[0] + 0.25 * proposal[-1])


def test_a_linear_warm_up_goes_on_after_a_stop(tmp_path: Path) -> None:
    config = replace(SHORT, warmup=15, warmup_linear=True)
    whole = run(config)

    with pytest.MonkeyPatch.context() as patch:
        original = step.DensityStep.set_schedule

        def dying(self: step.DensityStep, number: int) -> None:
            if number == 9:
                raise KeyboardInterrupt
            original(self, number)

        patch.setattr(step.DensityStep, "set_schedule", dying)
        with pytest.raises(Interrupted):
            run(config, tmp_path)
    assert_same(run(config, tmp_path), whole)


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
    assert training.descent.memory.gradients.norm() <= 0.01 * (1 + 1e-4)
    free = bench(replace(SHORT, clip=0.0))
    free(23)
    assert free.descent.memory.gradients.norm() > 0.1
    (group,) = free.descent.optimiser.param_groups
    assert group["lr"] == pytest.approx(1e-3 * 0.5 * (1 + math.cos(math.pi * 23 / 24)))


# --- stopping early -------------------------------------------------------------------------------


def test_early_stopping_restores_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation is best the second time, then falls: three validations later the run ends."""
    scores: Iterator[float] = iter([-3.0, -2.0, -2.5, -2.1, -2.0, -1.0, -1.0])
    averages: list[dict[str, Tensor]] = []

    def scripted(model: AEM, *_: object, **__: object) -> tuple[float, float]:
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
    z = model.standardise(torch.from_numpy(VALIDATION))
    assert validation_scores(model, z, None)[0] == progress.best_score


@pytest.mark.gpu
@pytest.mark.parametrize("network", ["resmade", "transformer"])
def test_a_captured_step_trains_as_an_eager_one(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph must see each step's rate, rows, nodes and dropout: the same losses to rounding."""
    model_config = ModelConfig(**{**TINY.__dict__, "network": network, "whiten": True})
    config = replace(SHORT, device="cuda", precision="float32", rise=5, warmup=10)
    found = fit(fresh(model_config), TRAIN, VALIDATION, config, quiet=True)
    monkeypatch.setattr(loop, "captured_on_gpu", lambda step, device: step)
    expected = fit(fresh(model_config), TRAIN, VALIDATION, config, quiet=True)
    pairs = zip(found.history, expected.history, strict=True)
    assert all(math.isclose(a["loss"], b["loss"], rel_tol=1e-3) for a, b in pairs)


def test_compiled_blocks_are_the_same_module(compiled_calls: Callable[[], int]) -> None:
    """Compiled while it trains, as if it had never been afterwards; validation takes the plain ones."""
    model_config = ModelConfig(**{**TINY.__dict__, "network": "transformer", "blocks": 2})
    plain, compiled = fresh(model_config), fresh(model_config)
    fit(plain, TRAIN, VALIDATION, SHORT, quiet=True)
    assert compiled_calls() == 0
    fit(compiled, TRAIN, VALIDATION, replace(SHORT, compiled=True), quiet=True)
    assert compiled_calls() == 2 * SHORT.steps
    compiled().log_prob(torch.from_numpy(VALIDATION[:3]))
    assert compiled_calls() == 2 * SHORT.steps
    for name, value in plain.state_dict().items():
        assert torch.equal(value, compiled.state_dict()[name]), name
