"""The tasks in the plane: the rows drawn and the density claimed must be of one distribution."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate, special, stats

from aem.data import synthetic
from aem.data.image import ImageTask
from aem.data.synthetic import Checkerboard, Diamond, PlaneTask, Spirals
from aem.data.tasks import PLANE_TASKS, plane_task
from aem.errors import AemError

Floats = npt.NDArray[np.float64]

TASKS: list[PlaneTask] = [plane_task(name) for name in PLANE_TASKS]
SIDE = 384  # cells to a side of the grid; also the pixels to a side of the shipped picture
every_task = pytest.mark.parametrize("task", TASKS, ids=PLANE_TASKS)


@cache
def log_prob_on_grid(task: PlaneTask) -> tuple[Floats, float]:
    """Return the log density at the centres of a grid over the window, and the area of a cell."""
    (left, right), (low, high) = task.bounds
    middle = (np.arange(SIDE) + 0.5) / SIDE
    across, up = left + (right - left) * middle, low + (high - low) * middle
    rows = np.stack(np.meshgrid(across, up, indexing="ij"), axis=-1).reshape(-1, 2)
    return task.log_prob(rows).reshape(SIDE, SIDE), (right - left) * (high - low) / SIDE**2


@every_task
def test_density_integrates_to_one(task: PlaneTask) -> None:
    log_density, area = log_prob_on_grid(task)
    assert np.exp(log_density).sum() * area == pytest.approx(1, abs=1e-8)


@every_task
def test_entropy_is_the_integral_of_the_surprise(task: PlaneTask) -> None:
    log_density, area = log_prob_on_grid(task)
    assert special.entr(np.exp(log_density)).sum() * area == pytest.approx(task.entropy(), abs=1e-6)


@every_task
def test_samples_have_the_frequencies_of_the_density(task: PlaneTask) -> None:
    """A chi-square test on 48 × 48 bins; right code fails for one seed in ten thousand.

    The threshold is ten times stricter, which leaves room for the error of the grid's integrals.
    """
    n, bins = 500_000, 48
    log_density, area = log_prob_on_grid(task)
    per_bin = SIDE // bins
    blocks = np.exp(log_density).reshape(bins, per_bin, bins, per_bin)
    expected = n * area * blocks.sum(axis=(1, 3))
    x, y = task.sample(n, seed=1).T
    observed, _, _ = np.histogram2d(x, y, bins=bins, range=task.bounds)

    # The test needs some ten rows to a bin: pool the emptier bins and all outside the window.
    full = expected >= 10
    observed_counts, expected_counts = observed[full], expected[full]
    if not full.all():
        observed_counts = np.append(observed_counts, n - observed_counts.sum())
        expected_counts = np.append(expected_counts, n - expected_counts.sum())
    statistic = np.sum((observed_counts - expected_counts) ** 2 / np.maximum(expected_counts, 1e-9))
    assert stats.chi2.sf(statistic, df=len(observed_counts) - 1) > 1e-5


@every_task
def test_mean_log_prob_of_samples_is_minus_the_entropy(task: PlaneTask) -> None:
    """Within four standard errors: right code fails for one seed in fifteen thousand."""
    log_prob = task.log_prob(task.sample(30_000, seed=2))
    standard_error = log_prob.std() / np.sqrt(len(log_prob))
    assert abs(log_prob.mean() + task.entropy()) <= 4 * standard_error + 1e-12


@every_task
def test_the_seed_decides_the_rows(task: PlaneTask) -> None:
    rows = task.sample(100, seed=3)
    assert rows.shape == (100, 2)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, task.sample(100, seed=3))
    assert not np.isin(rows, task.sample(100, seed=4)).any()


@every_task
def test_log_prob_of_a_row_ignores_the_other_rows(
    task: PlaneTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = task.sample(500, seed=5)
    together = task.log_prob(rows)
    monkeypatch.setattr(synthetic, "_ROWS_AT_ONCE", 7)
    assert together.dtype == np.float64
    np.testing.assert_allclose(task.log_prob(rows[::-1])[::-1], together, atol=1e-9)


@every_task
def test_log_prob_of_odd_rows(task: PlaneTask) -> None:
    rows = [[np.inf, 0.0], [0.0, -np.inf], [1e300, 1e300], [np.nan, 0.5], [0.5, np.nan]]
    expected = [-np.inf, -np.inf, -np.inf, np.nan, np.nan]
    np.testing.assert_array_equal(task.log_prob(rows), expected)
    assert task.log_prob(np.empty((0, 2))).shape == (0,)
    with pytest.raises(ValueError, match="rows of two numbers"):
        task.log_prob([0.0, 1.0])


def spirals_skeleton(m: Floats, corner: Any) -> Floats:
    """Return the first arm without its noise, as the paper's code writes it."""
    x = -0.7 * np.cos(m) * m + corner[0] * 0.35
    y = 0.7 * np.sin(m) * m + corner[1] * 0.35
    return np.stack([x, y], axis=-1) / 3


def test_spirals_density_against_a_fine_integral() -> None:
    m = np.linspace(0, 5 * np.pi, 60_001)
    centres, width = spirals_skeleton(m, (0.5, 0.5)), 0.35 / 3

    def one_arm(row: Floats) -> float:
        distance = np.abs(row - centres)
        near, far = (distance - width / 2) / 0.09, (distance + width / 2) / 0.09
        boxes = (special.ndtr(-near) - special.ndtr(-far)) / width
        prior = 2 * m / (5 * np.pi) ** 2
        return float(integrate.simpson(prior * boxes.prod(axis=1), x=m))

    window = np.random.default_rng(6).uniform(-4, 4, (50, 2))
    rows = np.concatenate([Spirals().sample(50, seed=6).astype(np.float64), window])
    expected = np.log([(one_arm(row) + one_arm(-row)) / 2 for row in rows])
    assert expected.min() < -15  # some rows lie well between the arms
    np.testing.assert_allclose(Spirals().log_prob(rows), expected, rtol=0, atol=1e-8)


def test_spirals_density_against_its_definition() -> None:
    """The density is the mean, over noiseless points, of the noise's density.

    Within 4.5 standard errors at eight rows: right code fails for one seed in eighteen thousand.
    """
    rng = np.random.default_rng(7)
    n = 400_000
    m = np.sqrt(rng.random(n)) * 900 * 2 * np.pi / 360
    noiseless = spirals_skeleton(m, rng.random((2, n))) * rng.choice([-1, 1], size=(n, 1))
    for row in Spirals().sample(8, seed=8).astype(np.float64):
        noise_density = stats.norm.pdf(row - noiseless, scale=0.09).prod(axis=1)
        standard_error = noise_density.std() / np.sqrt(n)
        error = noise_density.mean() - np.exp(Spirals().log_prob(row[None]))[0]
        assert abs(error) < 4.5 * standard_error


def test_spirals_log_density_is_finite_far_out() -> None:
    # The arm that ends furthest right ends there at x = (0.7 · 5π + 0.35) / 3.
    away = np.array([1e1, 1e3, 1e6, 1e9, 1e100])
    rows = np.stack([away, np.zeros_like(away)], axis=1)
    leading = -(((away - (0.7 * 5 * np.pi + 0.35) / 3) / 0.09) ** 2) / 2
    np.testing.assert_allclose(Spirals().log_prob(rows), leading, rtol=0.02)
    np.testing.assert_allclose(Spirals().log_prob(rows[1:]), leading[1:], rtol=1e-4)


def test_checkerboard_support() -> None:
    on_support = [[0.5, 0.5], [-0.5, -0.5], [-3.5, 2.5], [3.5, -2.5]]
    off_support = [[0.5, 1.5], [-0.5, 0.5], [-3.5, 3.5], [4.5, 0.5], [0.5, 4.5], [-4.5, -0.5]]
    assert (Checkerboard().log_prob(on_support) == -np.log(32)).all()
    assert (Checkerboard().log_prob(off_support) == -np.inf).all()


def test_checkerboard_is_not_rounded_off_its_support(monkeypatch: pytest.MonkeyPatch) -> None:
    class JustBelowEdges:
        def random(self, n: int, dtype: type[np.float32]) -> npt.NDArray[np.float32]:
            return np.arange(1, n + 1, dtype=dtype) / dtype(n) - dtype(2**-24)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: JustBelowEdges())
    rows = Checkerboard().sample(8, seed=0)
    assert np.isfinite(Checkerboard().log_prob(rows)).all()


def test_diamond_density_against_all_its_gaussians() -> None:
    grid = np.linspace(-2.5, 2.5, 15)
    means = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    turned = means @ (np.array([[1, -1], [1, 1]]) / np.sqrt(2))
    rows = np.concatenate([Diamond().sample(50, seed=9), [[0.1, 0.2], [2.5, 2.5], [5.0, 0.0]]])
    log_terms = stats.norm.logpdf(rows[:, None], loc=turned, scale=0.06).sum(axis=2)
    expected = special.logsumexp(log_terms, axis=1) - np.log(225)
    np.testing.assert_allclose(Diamond().log_prob(rows), expected, rtol=1e-10)


def test_plane_task_knows_the_names() -> None:
    assert [type(task) for task in TASKS] == [Spirals, Checkerboard, Diamond, ImageTask]
    assert [task.name for task in TASKS] == list(PLANE_TASKS)


def test_plane_task_refuses_other_names() -> None:
    with pytest.raises(AemError, match=r"'moons'.*spirals, checkerboard, diamond, image"):
        plane_task("moons")


def test_plane_task_refuses_a_picture_it_would_not_use() -> None:
    with pytest.raises(AemError, match=r"'spirals'.*einstein\.png"):
        plane_task("spirals", image="einstein.png")
