import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from aem.nn.features import (
    HIGHEST_FREQUENCY,
    LOWEST_FREQUENCY,
    REACH,
    FourierFeatures,
    choose_frequencies,
)

ROWS = 20_000
SUPPORTED = math.pi * math.sqrt(ROWS) / 8
Draw = Callable[[np.random.Generator], NDArray[np.float64]]


def top(column: NDArray[np.float64]) -> float:
    z = (column - column.mean()) / column.std()
    return float(choose_frequencies(z[:, None], 8)[0, -1])


def comb(rng: np.random.Generator, step: float, noise: float) -> NDArray[np.float64]:
    """Values on a grid of `step` with uniform noise of width `noise` on top."""
    return step * np.round(rng.normal(size=ROWS) / step) + noise * rng.random(ROWS)


@pytest.mark.parametrize(
    ("step", "noise"), [(0.002, 0.001), (0.002, 0.0), (0.01, 0.008), (0.05, 0.02), (0.02, 0.0)]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_comb_sets_the_top_frequency(step: float, noise: float, seed: int) -> None:
    column = comb(np.random.default_rng(seed), step, noise)
    z = (column - column.mean()) / column.std()
    expected = 2 * math.pi * column.std() / step
    # Off by more than this a wave and the comb drift apart from one end of the data to the other.
    assert abs(top(column) - expected) < 1 / np.ptp(z)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.normal(size=ROWS),
        lambda rng: rng.random(ROWS),
        lambda rng: rng.exponential(size=ROWS),
        lambda rng: rng.standard_cauchy(ROWS),
        lambda rng: np.where(rng.random(ROWS) < 0.5, -1.0, 1.0) + 0.05 * rng.normal(size=ROWS),
        lambda rng: comb(rng, 0.0002, 0.0),  # finer than any frequency we offer: no false line
    ],
    ids=["normal", "uniform", "exponential", "cauchy", "two modes", "too fine a comb"],
)
@pytest.mark.parametrize("seed", range(3))
def test_smooth_data_get_what_their_number_supports(draw: Draw, seed: int) -> None:
    assert top(draw(np.random.default_rng(seed))) == pytest.approx(SUPPORTED, rel=1e-12)


def test_each_column_has_its_own_ladder() -> None:
    rng = np.random.default_rng(0)
    x = np.stack((rng.normal(size=ROWS), comb(rng, 0.01, 0.0)), 1)
    ladders = choose_frequencies(x / x.std(0), 6)
    ratios = ladders[:, 1:] / ladders[:, :-1]
    np.testing.assert_allclose(ladders[:, 0], LOWEST_FREQUENCY)
    np.testing.assert_allclose(ratios, ratios[:, :1] * np.ones((1, 5)))
    assert ladders[1, -1] > 5 * ladders[0, -1]


@pytest.mark.parametrize("values", [2, 3, 10])
@pytest.mark.parametrize("rows", [10, 50, ROWS])
def test_a_few_discrete_values_do_no_harm(values: int, rows: int) -> None:
    column = np.random.default_rng(0).integers(0, values, rows).astype(float)
    assert LOWEST_FREQUENCY < top(column) <= HIGHEST_FREQUENCY


@pytest.mark.parametrize("count", [0, 1])
def test_few_frequencies(count: int) -> None:
    assert choose_frequencies(np.random.default_rng(0).normal(size=(100, 3)), count).shape == (
        3,
        count,
    )


def test_features_are_the_value_and_waves_of_it() -> None:
    frequencies = torch.tensor([[1.0, 7.0], [2.0, 30.0]], dtype=torch.float64)
    embed = FourierFeatures(frequencies)
    x = torch.randn(5, 2, dtype=torch.float64)
    features = embed(x)
    assert features.shape == (5, 2, embed.width)
    value, sine, cosine = features.split((1, 2, 2), -1)
    assert torch.equal(value[..., 0], x)
    # A quarter of a period later a sine is a cosine; their squares sum to a constant.
    for i in range(2):
        later = embed(x + math.pi / 2 / frequencies[:, i])
        torch.testing.assert_close(later[..., 1 + i], cosine[..., i])
        torch.testing.assert_close(later[..., 3 + i], -sine[..., i])
    assert (sine**2 + cosine**2).std(0).max() < 1e-12


def test_values_beyond_reach_are_read_at_its_edge() -> None:
    embed = FourierFeatures(torch.ones(1, 3))
    far = embed(torch.tensor([[REACH], [1e30], [float(np.finfo(np.float32).max)]]))
    assert torch.equal(far[1:], far[:1].expand(2, -1, -1))
