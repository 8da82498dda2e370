"""A whitened model: the same distribution theory, on what each column adds to those before."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aem import AEM, AemError, ModelConfig, TrainConfig
from aem.model.files import load_model, save_model
from aem.model.transforms.affine import Affine
from aem.paper.plane.density import plane_density
from aem.training import fit
from tests.support.transforms import entangled

SMALL = ModelConfig(
    whiten=True, hidden=16, blocks=1, gamma=4, energy_hidden=16, energy_blocks=1, components=3,
    frequencies=2,
)  # fmt: skip


@pytest.fixture
def model(randomise: Callable[[nn.Module], None]) -> AEM:
    """Random weights in the place of trained ones, in float64."""
    aem = AEM.for_data(SMALL, entangled(5000))
    randomise(aem)
    return aem.double().eval()


def rows_like_the_data(count: int) -> Tensor:
    return torch.from_numpy(entangled(5000)[:count])


@pytest.mark.parametrize("unit", [1e-25, 1e22])
def test_extreme_units(unit: float) -> None:
    config = replace(SMALL, network="transformer")
    plain, extreme = (AEM.for_data(config, entangled(500) * u) for u in (1.0, unit))
    there, here = (model.standardisation.deviations for model in (extreme, plain))
    torch.testing.assert_close(there / unit, here, rtol=1e-4, atol=0)
    torch.testing.assert_close(extreme.arnn.sums, plain.arnn.sums, rtol=1e-4, atol=1e-5)


def test_columns_of_incomparable_scales_are_refused() -> None:
    with pytest.raises(AemError, match="similar scale"):
        AEM.for_data(SMALL, entangled(500) * np.array([1e-30, 1, 1, 1e30]))


def test_the_density_is_that_of_a_plain_model_of_what_the_networks_see(model: AEM) -> None:
    """log p(x) = log p(z) − Σ log scale: the map is triangular."""
    plain = AEM(ModelConfig(**{**model.config.__dict__, "whiten": False})).double().eval()
    plain.load_state_dict(model.state_dict(), strict=False)  # the slopes are left over
    plain.standardisation = Affine.identity(4).double()
    x = rows_like_the_data(30)
    expected = plain().log_prob(model.standardise(x)) - model.standardisation.scale.log().sum()
    torch.testing.assert_close(model().log_prob(x), expected, rtol=1e-9, atol=1e-9)


def test_a_plane_density_has_mass_one(randomise: Callable[[nn.Module], None]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2))
    x[:, 1] = 2 * x[:, 0] + 0.3 * x[:, 1]
    aem = AEM.for_data(SMALL, x)
    randomise(aem)
    bounds = ((-12.0, 12.0), (-40.0, 40.0))
    density = plane_density(aem.double().eval(), bounds, points=1200)
    cell = 24 / 1200 * 80 / 1200
    for log_density in (density.model, density.proposal):
        assert np.exp(log_density).sum() * cell == pytest.approx(1, abs=2e-3)
    column, row = 600, 610
    point = torch.tensor([[density.x[column], density.y[row]]])
    assert aem().log_prob(point).item() == pytest.approx(density.model[row, column], abs=2e-3)


def test_cdf_and_its_inverse(model: AEM) -> None:
    x = rows_like_the_data(20)
    torch.testing.assert_close(model().icdf(model().cdf(x)), x, rtol=1e-5, atol=1e-5)


def test_conditionals_are_in_the_units_of_the_data(model: AEM) -> None:
    x = rows_like_the_data(6)
    conditionals = model().conditionals(x)
    total = sum(c.log_density(x[:, d, None])[:, 0] for d, c in enumerate(conditionals))
    torch.testing.assert_close(total, model().log_prob(x), rtol=1e-6, atol=2e-3)
    last = conditionals[-1]
    levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    torch.testing.assert_close(last.cdf(last.quantile(levels)), levels.expand(6, 3))
    torch.testing.assert_close(last.pit(), model().cdf(x)[:, -1], rtol=0, atol=1e-4)
    spread = float(model.standardisation.scale[-1]) * 60
    centre = model.standardisation.centre(x)[:, -1:]
    grid = centre + torch.linspace(-spread, spread, 20_001, dtype=torch.float64)
    p = last.density(grid)
    torch.testing.assert_close(last.mean(), torch.trapezoid(p * grid, grid), rtol=1e-5, atol=1e-3)
    for row, region in enumerate(last.highest_density_regions(0.5)):
        mass = sum(
            float(last.cdf(high[None])[row, 0] - last.cdf(low[None])[row, 0])
            for low, high in region
        )
        assert mass == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("method", ["exact", "inverse", "resample", "proposal"])
def test_samples_have_the_table_s_correlations(method: str) -> None:
    """With a flat energy and one Gaussian of unit deviation the model is the table's Gaussian."""
    x = entangled(5000)
    aem = AEM.for_data(ModelConfig(**{**SMALL.__dict__, "components": 1}), x)
    with torch.no_grad():
        aem.arnn.final.weight.zero_()
        aem.energy.final.weight.zero_()
        bias = aem.arnn.final.bias.view(4, -1)
        bias[:, 1] = 0
        bias[:, 2] = np.log(np.expm1(1 - SMALL.min_scale))
    torch.manual_seed(0)
    drawn = aem.eval()().sample((20_000,), method=method)
    found = np.corrcoef(drawn.numpy().T)
    np.testing.assert_allclose(found, np.corrcoef(x.T), atol=0.02)
    np.testing.assert_allclose(drawn.numpy().std(0), x.std(0), rtol=0.03)


def test_training_starts_where_the_regressions_are() -> None:
    """A few steps suffice where columns nearly determine each other; a plain model needs many."""
    x = entangled(4000, 8)
    settings = TrainConfig(steps=60, batch_size=256, validate_every=60, learning_rate=3e-3)
    covariance = np.cov(x[:3000].T)
    best = -0.5 * (np.linalg.slogdet(covariance)[1] + 8 * (1 + np.log(2 * np.pi)))
    scores = {}
    for whiten in (True, False):
        torch.manual_seed(0)
        config = ModelConfig(**{**SMALL.__dict__, "whiten": whiten, "hidden": 32})
        model = AEM.for_data(config, x[:3000])
        scores[whiten] = fit(model, x[:3000], x[3000:], settings, quiet=True).best_score
    assert scores[True] > best - 0.5
    assert scores[True] > scores[False] + 2


def test_a_whitened_model_returns_from_its_file(model: AEM, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model.aem")
    x = rows_like_the_data(10)
    loaded = load_model(tmp_path / "model.aem")
    assert torch.equal(loaded().log_prob(x), model().log_prob(x))


def test_columns_that_others_determine_leave_a_finite_model() -> None:
    x = entangled(500)
    x[:, 3] = x[:, 1] - 2 * x[:, 2]
    aem = AEM.for_data(SMALL, x).eval()
    assert bool(torch.isfinite(aem().log_prob(torch.from_numpy(x[:10]))).all())


@pytest.mark.parametrize(
    "other",
    [{"proposal": "uniform", "bounds": ((0.0, 1.0),)}, {"lattice": ((0.0, 1.0),)}],
    ids=["uniform", "lattice"],
)
def test_bounds_and_steps_of_columns_cannot_be_whitened(other: dict[str, Any]) -> None:
    with pytest.raises(AemError, match="whiten"):
        ModelConfig(**{"whiten": True, **other})
