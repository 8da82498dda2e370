"""MAF's MADE is a check of the data only if it is a density, and trained as it says."""

import pytest
import torch

from benchmarks.claims.made import MixtureMade, Study, scores, train


def test_it_is_a_density() -> None:
    torch.manual_seed(0)
    model = MixtureMade(2, hidden=16, layers=2, components=3)
    x = torch.linspace(-25, 25, 801)
    grid = torch.cartesian_prod(x, x)
    mass = scores(model, grid).exp().sum() * float(x[1] - x[0]) ** 2
    assert float(mass) == pytest.approx(1, abs=1e-3)


def test_conditionals_see_only_what_came_before() -> None:
    torch.manual_seed(0)
    model = MixtureMade(4, hidden=16, layers=1, components=3)
    x = torch.randn(4)
    slopes = torch.autograd.functional.jacobian(lambda row: model.parameters_of(row[None])[0], x)
    seen = slopes.abs().amax((1, 2))  # of which conditional, by which input
    assert torch.equal(seen > 0, torch.ones(4, 4).tril(-1) > 0)


def test_training_ends_with_the_best_weights() -> None:
    torch.manual_seed(0)
    rows = torch.randn(60, 2) * torch.tensor([0.1, 3.0])
    model = MixtureMade(2, hidden=32, layers=1, components=3)
    held_out = torch.randn(200, 2) * torch.tensor([0.1, 3.0])
    before = float(scores(model, held_out).mean())
    # So few rows are soon learned by heart: patience ends it.
    study = Study(batch_size=20, learning_rate=1e-2, patience=5, epochs=500)
    progress = train(model, rows, held_out, study)
    curve = [found["validation_log_prob"] for found in progress.history]
    best = max(curve)
    assert float(scores(model, held_out).mean()) == pytest.approx(best, abs=1e-5)
    assert best > before
    assert len(curve) < 500
    assert all(score < best for score in curve[-5:])
