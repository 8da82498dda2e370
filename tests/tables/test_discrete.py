"""Discrete columns: found, spread over cells, scored by the probability of a cell."""

import numpy as np
import pytest

from aem.tables.discrete import Discrete, dequantise, recognise
from aem.tables.fit.automatic import fit_table
from aem.tables.fit.settings import FitSettings
from aem.tables.model import TableModel

RNG = np.random.default_rng(0)


def only(column: np.ndarray) -> Discrete | None:
    found = recognise(np.asarray(column, dtype=float)[:, None], ["a"])
    return found[0] if found else None


@pytest.mark.parametrize(
    ("column", "step"),
    [
        (RNG.integers(0, 10, 200), 1.0),
        (RNG.integers(0, 2, 200), 1.0),
        (10 * RNG.integers(-5, 5, 200) + 3, 10.0),
        (0.25 * RNG.integers(0, 5, 200), 0.25),
        (0.1 * RNG.integers(0, 5, 200) + 0.2, 0.1),  # 0.1 · 3 + 0.2 is not 0.5 exactly
        ((RNG.integers(0, 4, 500) - 1.7) / 1.234, 1 / 1.234),  # standardised counts
        (RNG.choice([0.0, 0.4, 1.0], 200), 0.2),
        (np.full(50, 7.0), 1.0),
        (np.full(50, 0.25), 0.01),
    ],
)
def test_recognised(column: np.ndarray, step: float) -> None:
    found = only(column)
    assert found is not None
    assert found.step == pytest.approx(step)
    assert not found.values
    np.testing.assert_allclose(found.centre(np.asarray(column, dtype=float)), column, atol=1e-9)


@pytest.mark.parametrize(
    "column",
    [
        RNG.normal(size=200),
        np.round(RNG.normal(size=200), 3),  # rounded, but hardly a value repeats
        RNG.integers(0, 10**9, 200),  # whole numbers so many that they may as well be measured
        np.array([1e308, -1e308] * 20),
        np.append(RNG.normal(size=300), 1e10),  # one far value does not make the others the same
        np.append(RNG.integers(0, 10, 300), 10**11),
    ],
)
def test_measured(column: np.ndarray) -> None:
    assert only(column) is None


def test_decimals_come_back_as_they_were_written() -> None:
    tenths = np.array([float(f"{k / 10:.1f}") for k in range(106, 301)])
    found = only(np.repeat(tenths, 3))
    assert found is not None
    assert found.step == pytest.approx(0.1, rel=1e-14)
    np.testing.assert_array_equal(found.centre(tenths + 0.02), tenths)
    far = 1.7e9 + np.arange(0, 200, 0.5)
    found = only(np.repeat(far, 3))
    assert found is not None
    np.testing.assert_array_equal(found.centre(far), far)


def test_values_without_a_common_step_come_back_as_they_were() -> None:
    values = np.array([0.0, 1.0, np.pi, 7.1])
    found = only(RNG.choice(values, 200))
    assert found is not None
    assert found.step == pytest.approx(1.0)
    np.testing.assert_array_equal(found.restore(values + 0.3), values)


def test_dequantised_values_fill_their_cells() -> None:
    x = RNG.integers(0, 3, (1000, 2)).astype(float)
    spread = dequantise(x, ["a", "b"], [Discrete("b", 0.0, 1.0, 3, 1e-3, "")], RNG)
    np.testing.assert_array_equal(spread[:, 0], x[:, 0])
    assert (np.abs(spread[:, 1] - x[:, 1]) <= 0.5).all()
    assert np.ptp(spread[:, 1] - x[:, 1]) > 0.98


@pytest.fixture(scope="module")
def counts() -> tuple[np.ndarray, TableModel]:
    """A count, a measurement that depends on it, and a coin that depends on both."""
    rng = np.random.default_rng(1)
    a = rng.poisson(2.0, 1200)
    b = rng.normal(a, 0.5)
    c = rng.random(1200) < 1 / (1 + np.exp(2 * (b - a)))
    x = np.stack((a, b, c), axis=1).astype(float)
    settings = FitSettings(steps=30, hidden=16, components=4)
    return x, fit_table(x, ["a", "b", "c"], settings=settings).table


def test_probabilities_of_all_values_sum_to_one(counts: tuple[np.ndarray, TableModel]) -> None:
    x, table = counts
    assert [column.column for column in table.discrete] == ["a", "c"]
    row = np.repeat(x[:1], 41, axis=0)
    row[:, 0] = np.arange(-10, 31)
    scores = table.score(row)
    assert np.exp(scores.log_density[:, 0]).sum() == pytest.approx(1.0, abs=2e-3)
    row = np.repeat(x[:1], 41, axis=0)
    row[:, 2] = np.arange(-20, 21)
    assert np.exp(table.score(row).log_density[:, 2]).sum() == pytest.approx(1.0, abs=2e-3)


def test_probabilities_are_those_of_the_data(counts: tuple[np.ndarray, TableModel]) -> None:
    x, table = counts
    row = np.repeat(x[:1], 5, axis=0)
    row[:, 0] = np.arange(5)
    expected = np.exp(-2.0) * np.array([1, 2, 2, 4 / 3, 2 / 3])
    found = np.exp(table.score(row).log_density[:, 0])
    np.testing.assert_allclose(found, expected, atol=0.05)
    # Nobody has seen a count below zero or a coin that is neither heads nor tails.
    row = x[:2].copy()
    row[0, 0], row[1, 2] = -1, 2
    scores = np.exp(table.score(row).log_density)
    assert 0 < scores[0, 0] < 1e-3
    assert 0 < scores[1, 2] < 1e-3


def test_the_farthest_value_has_a_log_density(counts: tuple[np.ndarray, TableModel]) -> None:
    """Ever lower with the distance, and a number as long as the model can hold the value."""
    x, trained = counts
    mixture = fit_table(x, ["a", "b", "c"], settings=FitSettings(steps=0)).table
    assert mixture.exact.flat
    rows = np.repeat(x[:1], 6, axis=0)
    rows[:, 0] = [1e2, 1e8, 1e16, 1e17, 1e25, 1e30]
    for model in (trained, mixture):
        totals = model.score(rows).total
        assert np.isfinite(totals).all()
        assert (np.diff(totals) < 0).all()


def test_where_in_its_cell_a_value_lies_tells_nothing(
    counts: tuple[np.ndarray, TableModel],
) -> None:
    x, table = counts
    near = x[:5].copy()
    near[:, 0] += 0.3
    np.testing.assert_allclose(
        table.score(near).log_density, table.score(x[:5]).log_density, atol=1e-9
    )


def test_draws_are_values_of_the_column(counts: tuple[np.ndarray, TableModel]) -> None:
    x, table = counts
    drawn = table.sample(500, seed=0)
    assert (drawn[:, 0] == np.round(drawn[:, 0])).all()
    assert (~np.isin(drawn[:, 2], [0, 1])).sum() <= 3
    assert (~np.isin(drawn[:, 0], x[:, 0])).sum() <= 3
    assert abs(drawn[:, 0].mean() - x[:, 0].mean()) < 0.35
    assert abs(drawn[:, 2].mean() - x[:, 2].mean()) < 0.1
