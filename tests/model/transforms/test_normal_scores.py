"""Normal scores of a heavy-tailed column: monotone, smooth, and those of SciPy's interpolation."""

import numpy as np
import pytest
import torch
from scipy.interpolate import PchipInterpolator
from scipy.stats import norm
from torch import Tensor

from aem.errors import AemError
from aem.model.transforms.normal_scores import HEAVY_TAILED, NormalScores, crowding, heavy_tailed


def crowded(count: int, seed: int = 0) -> np.ndarray:
    """A spike with a sharp edge and a long tail."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(count) < 0.9, 0.05 * rng.random(count), rng.exponential(3.0, count))


@pytest.fixture(scope="module")
def scores() -> NormalScores:
    found = NormalScores.of(0, crowded(5000))
    assert found is not None
    return found


def column(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values)[:, None]


def test_it_is_the_monotone_cubic_of_scipy(scores: NormalScores) -> None:
    x = np.concatenate((np.linspace(scores.values[0], scores.values[-1], 20_001), scores.values))
    cubic = PchipInterpolator(scores.values, scores.scores)
    found = scores.forward(column(x))[:, 0].numpy()
    np.testing.assert_allclose(found, cubic(x), rtol=1e-14, atol=1e-14)
    slopes = scores.log_slopes(column(x))[:, 0].exp().numpy()
    np.testing.assert_allclose(slopes, cubic(x, 1), rtol=1e-12)


def test_it_is_straight_beyond_the_outermost_points(scores: NormalScores) -> None:
    (a, b), (c, d) = (np.array(points[:2]) for points in (scores.values, scores.scores))
    below = np.array([a - 5.0, a - 1e4])
    expected = c + (below - a) * (d - c) / (b - a)
    np.testing.assert_allclose(scores.forward(column(below))[:, 0], expected, rtol=1e-14)
    (a, b), (c, d) = (np.array(points[-2:]) for points in (scores.values, scores.scores))
    above = np.array([b + 5.0, b + 1e4])
    expected = d + (above - b) * (d - c) / (b - a)
    np.testing.assert_allclose(scores.forward(column(above))[:, 0], expected, rtol=1e-14)
    np.testing.assert_allclose(scores.log_slopes(column(above)), np.log((d - c) / (b - a)))


def test_values_and_scores_are_one_to_one(scores: NormalScores) -> None:
    x = np.sort(np.concatenate((crowded(2000, 5), [-2.0, -1e-3, 40.0, 1e4])))
    y = scores.forward(column(x))
    assert bool((y.diff(dim=0) > 0).all())
    np.testing.assert_allclose(scores.inverse(y)[:, 0], x, rtol=1e-9, atol=1e-9)


def test_scores_are_about_normal(scores: NormalScores) -> None:
    y = np.sort(scores.forward(column(crowded(5000, 7)))[:, 0].numpy())
    assert np.abs(norm.cdf(y) - (np.arange(5000) + 0.5) / 5000).max() < 0.04


def test_other_columns_stay(scores: NormalScores) -> None:
    x = torch.randn(20, 3, dtype=torch.float64)
    assert torch.equal(scores.forward(x)[:, 1:], x[:, 1:])
    assert torch.equal(scores.inverse(x)[:, 1:], x[:, 1:])
    assert not scores.log_slopes(x)[:, 1:].any()


def test_only_heavy_tailed_columns_are_transformed() -> None:
    plain = np.random.default_rng(1).normal(size=2000)
    x = np.stack((plain, crowded(2000)), 1)
    assert crowding(x)[0] < 1.2
    assert crowding(x)[1] > HEAVY_TAILED
    assert [transform.column for transform in heavy_tailed(x)] == [1]
    assert not heavy_tailed(x, without=[1])


def test_a_column_of_few_values_has_none() -> None:
    few = np.where(np.random.default_rng(0).random(2000) < 0.99, 0.0, 5.0)
    assert NormalScores.of(0, few) is None


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        ((0.0, 1.0), (1.0, -1.0)),
        ((0.0, 0.0), (-1.0, 1.0)),
        ((0.0, 1.0, 2.0), (-1.0, 1.0)),
        ((0.0,), (0.0,)),
        ((0.0, float("nan")), (-1.0, 1.0)),
    ],
)
def test_points_that_do_not_rise_are_refused(
    values: tuple[float, ...], scores: tuple[float, ...]
) -> None:
    with pytest.raises(AemError, match=r"normal-scores transform.*(of column 5 is damaged|finite)"):
        NormalScores(4, values, scores)
