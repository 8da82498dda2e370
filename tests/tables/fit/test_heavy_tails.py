"""An automatic fit of a heavy-tailed column: a density of the data, though networks read its scores."""

from pathlib import Path

import numpy as np
import pytest

from aem.cli.fit import sentences
from aem.errors import AemError
from aem.model.files import load_model
from aem.model.transforms.normal_scores import NormalScores
from aem.tables.fit.automatic import fit_table
from aem.tables.fit.settings import FitSettings
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
def fitted() -> TableModel:
    settings = FitSettings(components=4, hidden=32, steps=60, frequencies=2)
    return fit_table(table(3000), COLUMNS, settings=settings, device="cpu").table


def test_a_density_of_the_data(fitted: TableModel) -> None:
    """Summed over the crowded column, what is left is the plain one's density."""
    (scores,) = fitted.transform.parts
    assert isinstance(scores, NormalScores)
    assert scores.column == 1
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
    with pytest.raises(AemError, match="columns that it transforms"):
        load_model(path)


def test_what_is_reported_of_training_is_in_units_of_the_data(fitted: TableModel) -> None:
    network = fitted.about["network"]
    held_out = network["validation_log_prob"]
    scored = fitted.score(table(3000, seed=0)).total.mean()
    assert held_out == pytest.approx(scored, abs=0.3)
    for name in ("validation_log_prob", "validation_proposal_log_prob"):
        assert network["history"][-1][name] == pytest.approx(held_out, abs=0.5)
    sentence = sentences(fitted, Path("m.aem"), 1.0)[1]
    assert sentence == "Column 'crowded' is heavy-tailed: the model reads its normal scores."


def test_discrete_columns_keep_their_values(fitted: TableModel) -> None:
    """However long the tail: a count is never bent."""
    rng = np.random.default_rng(0)
    counts = np.where(rng.random(2500) < 0.9, rng.integers(0, 3, 2500), rng.geometric(0.02, 2500))
    x = np.stack((rng.normal(size=2500), counts), 1)
    settings = FitSettings(components=2, hidden=8, steps=5, frequencies=1)
    found = fit_table(x, COLUMNS, settings=settings, device="cpu").table
    assert [column.column for column in found.discrete] == ["crowded"]
    assert not found.transform.parts
