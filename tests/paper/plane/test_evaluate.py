"""Scores of every kind, rows that have no density, and the paper's settings."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aem import AEM
from aem.data.tasks import plane_task
from aem.nn.resmade import ResMADE
from aem.paper.plane.config import ExperimentConfig, PlaneScoring, TaskConfig, experiment
from aem.paper.plane.density import estimated_density, plane_density
from aem.paper.plane.evaluate import evaluate_plane
from aem.paper.plane.run import run_plane
from aem.training.checkpoint import TrainingState
from tests.support.short_runs import SHORT, TINY

LITERAL = replace(
    TINY, energy="literal", standardise=False, spread_components=False, frequencies=0, dropout=0.0,
    energy_dropout=0.0,
)  # fmt: skip
CPU = torch.device("cpu")


@torch.no_grad()
def literal_model(*, lost: bool) -> AEM:
    """A literal energy softplus(4 |x|) of both columns, which sees them as they are.

    The second column has lost the branch on the left, and with it a finite normaliser, in rows whose
    first column is positive; or nowhere.
    """
    torch.manual_seed(3)
    model = AEM(replace(LITERAL, features=2)).eval()
    arnn, energy = model.arnn, model.energy
    assert isinstance(arnn, ResMADE)
    for parameter in (*energy.parameters(), *arnn.initial.parameters(), *arnn.final.parameters()):
        parameter.zero_()
    energy.from_value.weight[:2, 0] = torch.tensor([1.0, -1.0])
    energy.final.weight[0, :2] = 4.0
    if lost:  # γ of the second column is a multiple of max(x₁, 0)
        arnn.initial.weight[0, 0] = 1.0
        arnn.final.weight[arnn.outputs + model.head.size, 0] = -1e30
        energy.from_context.weight[1, 0] = 1e38
    return model


def test_rows_without_a_density_are_counted_and_left_out() -> None:
    task = plane_task("spirals")
    test = task.sample(60, 1)
    settings = PlaneScoring(importance_samples=50)
    found = evaluate_plane(literal_model(lost=True), task, test, CPU, settings)
    lost = int((test[:, 0] > 0).sum())
    assert 0 < lost < 60
    assert found["rows_without_density"] == found["quadrature"]["rows_without_density"] == lost
    whole = evaluate_plane(literal_model(lost=False), task, test, CPU, settings)
    assert whole["rows_without_density"] == 0
    # Where there is a density it is that of the model that never loses it.
    rest = evaluate_plane(literal_model(lost=False), task, test[test[:, 0] <= 0], CPU, settings)
    assert math.isclose(found["test_log_prob"], rest["test_log_prob"], abs_tol=2e-3)
    assert math.isclose(found["gap"], rest["gap"], abs_tol=2e-3)
    assert found["proposal_log_prob"] == whole["proposal_log_prob"]
    # Estimates notice nothing, as in the paper.
    assert found["importance"]["rows_without_density"] == 0
    assert math.isfinite(found["importance"]["mean"])


def test_a_run_without_any_density_leaves_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only rows to the right of zero: none has a density, and everything is written all the same."""
    task = plane_task("spirals")
    draw = type(task).sample

    def positive(self: Any, n: int, seed: int) -> Any:
        rows = draw(self, n, seed)
        return np.stack((np.abs(rows[:, 0]) + 0.1, rows[:, 1]), 1)

    def lose(model: AEM, *_: Any, **__: Any) -> TrainingState:
        model.load_state_dict(literal_model(lost=True).state_dict())
        return TrainingState(step=1, best_step=1)

    monkeypatch.setattr(type(task), "sample", positive)
    monkeypatch.setattr("aem.paper.plane.run.fit", lose)
    config = ExperimentConfig(
        TaskConfig("spirals", train_rows=50, validation_rows=20, test_rows=20),
        LITERAL,
        SHORT,
        PlaneScoring(importance_samples=20, samples=50, grid=8),
    )
    run_plane(config, "paper", tmp_path, quiet=True)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["rows_without_density"] == 20
    assert metrics["test_log_prob"] is None and metrics["gap"] is None
    assert math.isfinite(metrics["importance"]["gap"]) and math.isfinite(metrics["proposal_gap"])
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_estimated_scores_and_densities_agree_with_the_quadrature() -> None:
    model = literal_model(lost=False)
    task = plane_task("spirals")
    settings = PlaneScoring(importance_samples=4000)
    found = evaluate_plane(model, task, task.sample(40, 1), CPU, settings)
    error = found["importance"]["noise_2se"] + found["quadrature"]["error"]
    assert abs(found["importance"]["above_quadrature"]["mean"]) < 2 * error + 0.01
    assert found["importance"]["samples"] == 4000
    exact = plane_density(model, task.bounds, 6)
    estimated = estimated_density(model, task.bounds, 6, samples=4000)
    np.testing.assert_array_equal(estimated.x, exact.x)
    np.testing.assert_allclose(estimated.proposal, exact.proposal, atol=1e-4)
    # Independent errors of two normalisers each; log Z of a point is not log Z of its neighbour.
    np.testing.assert_allclose(estimated.model, exact.model, atol=0.3)
    assert len(np.unique(estimated.model - exact.model)) == 36


@pytest.mark.parametrize("task", ["spirals", "checkerboard", "diamond", "image"])
def test_the_papers_settings(task: str) -> None:
    """Columns as they are, a million points, 1,000 importance samples, 100 proposals."""
    config = experiment(task, "paper")
    assert not config.model.standardise
    assert config.task.train_rows == config.evaluate.samples == 1_000_000
    assert (config.evaluate.importance_samples, config.evaluate.proposals) == (1000, 100)
    if config.model.proposal == "mixture":
        assert (config.model.min_scale, config.model.components) == (1e-3, 10)
        # From the authors' start the diamond's energy runs away, as nothing warms up before it.
        assert config.model.spread_components == (task == "diamond")
