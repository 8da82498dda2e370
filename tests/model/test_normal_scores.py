"""A lens is monotone and has the slope it says; a model seen through one is a density of the data."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from aem.cli.fit import sentences
from aem.errors import AemError
from aem.model.files import load_model, save_model
from aem.model.transforms.normal_scores import CROWDED, Lens, crowding, lenses_for
from aem.tables.fit.automatic import FitSettings, fit_table
from aem.tables.model import TableModel
from aem.tables.queries.explain import explain

COLUMNS = ["plain", "crowded"]


def crowded(count: int, seed: int = 0) -> np.ndarray:
    """A spike with a sharp edge and a long tail."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(count) < 0.9, 0.05 * rng.random(count), rng.exponential(3.0, count))


def table(count: int, seed: int = 0) -> np.ndarray:
    plain = np.random.default_rng(seed + 1).normal(size=count)
    return np.stack((plain, crowded(count, seed)), 1)


@pytest.fixture(scope="module")
def lens() -> Lens:
    found = Lens.of("crowded", crowded(5000))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def fitted() -> TableModel:
    settings = FitSettings(components=4, hidden=32, steps=60, frequencies=2)
    return TableModel(fit_table(table(3000), COLUMNS, settings=settings, device="cpu"))


def test_values_and_scores_are_one_to_one(lens: Lens) -> None:
    x = np.sort(np.concatenate((crowded(2000, 5), [-2.0, -1e-3, 40.0, 1e4])))
    y = lens(x)
    assert (np.diff(y) > 0).all()
    np.testing.assert_allclose(lens.inverse(y), x, rtol=1e-9, atol=1e-9)


def test_the_slope_is_the_derivative(lens: Lens) -> None:
    x = np.concatenate((crowded(500, 6), [-1.0, 60.0]))
    step = 1e-7
    numerical = (lens(x + step) - lens(x - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(lens.log_slope(x)), numerical, rtol=2e-2)


def test_scores_are_about_normal(lens: Lens) -> None:
    y = np.sort(lens(crowded(5000, 7)))
    levels = norm.cdf(y)
    assert np.abs(levels - (np.arange(5000) + 0.5) / 5000).max() < 0.04


def test_only_crowded_columns_have_one() -> None:
    x = table(2000)
    assert crowding(x)[0] < 1.2
    assert crowding(x)[1] > CROWDED
    assert [lens.column for lens in lenses_for(x, COLUMNS, [])] == ["crowded"]
    assert not lenses_for(x, COLUMNS, ["crowded"])
    few = np.where(np.random.default_rng(0).random(2000) < 0.99, 0.0, 5.0)
    assert Lens.of("few", few) is None


def test_a_density_of_the_data(fitted: TableModel) -> None:
    """Summed over the crowded column, what is left is the plain one's density."""
    assert list(fitted.lenses) == [1]
    edges = np.concatenate((np.linspace(-0.2, 0.2, 8001), np.geomspace(0.2001, 500, 4000)))
    middle = 0.5 * (edges[1:] + edges[:-1])
    rows = np.stack((np.full_like(middle, 0.3), middle), 1)
    terms = fitted.score(rows).log_density
    assert np.exp(terms[:, 1]) @ np.diff(edges) == pytest.approx(1.0, abs=5e-3)
    assert np.ptp(terms[:, 0]) == 0


def test_draws_have_the_spike_and_the_tail(fitted: TableModel) -> None:
    drawn = fitted.sample(4000, seed=0)[:, 1]
    data = crowded(4000, 9)
    for level in (0.05, 0.5, 0.85, 0.97):
        share = (drawn < np.quantile(data, level)).mean()
        assert share == pytest.approx(level, abs=0.03)


def test_explanations_are_in_units_of_the_data(fitted: TableModel) -> None:
    found = explain(fitted, np.array([[0.0, 0.02], [0.0, 300.0]]))
    assert 0 < found.median[0, 1] < 0.06
    assert found.surprise[1, 1] > 5 > found.surprise[0, 1]
    low, high = found.regions[0][1][0]
    assert -0.01 < low < high < 10


def test_one_file(fitted: TableModel, tmp_path: Path) -> None:
    path = tmp_path / "crowded.aem"
    fitted.save(path)
    x = table(50, seed=3)
    again = TableModel.load(path)
    np.testing.assert_array_equal(again.score(x).log_density, fitted.score(x).log_density)
    np.testing.assert_array_equal(again.sample(20, seed=1), fitted.sample(20, seed=1))
    with pytest.raises(AemError, match="through a lens"):
        load_model(path)


@pytest.mark.parametrize("lens", [{}, {"column": "gone", "values": [0, 1], "scores": [0, 1]}])
def test_a_file_whose_lens_is_not_whole(
    fitted: TableModel, tmp_path: Path, lens: dict[str, object]
) -> None:
    path = tmp_path / "torn.aem"
    save_model(fitted.model, path, **{**fitted.about, "lenses": [lens]})
    with pytest.raises(AemError, match="does not hold a complete model"):
        TableModel.load(path)


def test_what_is_reported_of_training_is_in_units_of_the_data(fitted: TableModel) -> None:
    network = fitted.about["network"]
    held_out = network["validation_log_prob"]
    scored = fitted.score(table(3000, seed=0)).total.mean()
    assert held_out == pytest.approx(scored, abs=0.3)
    for name in ("validation_log_prob", "validation_proposal_log_prob"):
        assert network["history"][-1][name] == pytest.approx(held_out, abs=0.5)
    sentence = sentences(fitted, Path("m.aem"), 1.0)[1]
    assert sentence.startswith("Column 'crowded' is crowded")
