"""Tabulated conditionals agree with exact ones, to the width of a line in a plot."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from aem.conditionals.batch import EnergyForm
from aem.conditionals.conditional import Conditional
from aem.conditionals.tabulated import TabulatedConditionals, tabulate
from aem.model.transforms.affine import Affine
from tests.support.rough import flat_conditionals, rough_model, rows_of


def test_of_normal_distributions() -> None:
    grid = np.linspace(-8, 8, 4001)
    means, scales = np.array([0.0, 3.0]), np.array([1.0, 0.1])
    mass = np.diff(norm.cdf(grid))
    both = TabulatedConditionals(means[:, None] + scales[:, None] * grid, np.stack((mass, mass)))
    np.testing.assert_allclose(both.medians(), means, atol=1e-3)
    np.testing.assert_allclose(both.modes(), means, atol=5e-3)
    expected = -norm.entropy(scale=scales)
    np.testing.assert_allclose(both.mean_log_density(), expected, atol=1e-4)
    for index, (mean, scale) in enumerate(zip(means, scales, strict=True)):
        region = both.highest_density_region(index, mass=0.9)
        ends = np.array(norm.ppf((0.05, 0.95), mean, scale))
        np.testing.assert_allclose(np.array(region), ends[None], atol=0.01 * scale)


def test_a_region_between_two_modes_is_parted() -> None:
    grid = np.linspace(-8, 8, 4001)
    mass = np.diff(0.5 * norm.cdf(grid, -4) + 0.5 * norm.cdf(grid, 4))
    (low, first), (second, high) = TabulatedConditionals(grid, mass).highest_density_region(
        mass=0.9
    )
    assert low < -4 < first < second < 4 < high
    held = 2 * (norm.cdf(high, 4) - norm.cdf(second, 4))
    assert held / 2 == pytest.approx(0.9, abs=2e-3)


def tabulated(form: EnergyForm) -> tuple[TabulatedConditionals, list[Conditional]]:
    """The conditionals of five rows of two columns, tabulated and exact, all standardised."""
    model = rough_model(form, size=1.0, top=9.0)
    model.standardisation = Affine.identity(2)
    z, mass = tabulate(flat_conditionals(model, 5))
    torch.testing.assert_close(mass.sum(-1), torch.ones(10, dtype=torch.float64))
    shape = (5, 2, -1)
    table = TabulatedConditionals(z.reshape(shape).numpy(), mass.reshape(shape).numpy())
    return table, model().conditionals(rows_of(model, 5))


# A literal energy has mass where its proposal has few quantiles.
@pytest.mark.parametrize(("form", "within"), [("relative", 0.02), ("literal", 0.05)])
def test_medians_are_those_of_the_exact_conditionals(form: EnergyForm, within: float) -> None:
    table, exact = tabulated(form)
    medians = np.stack([one.quantile(torch.tensor([0.5]))[:, 0].numpy() for one in exact], -1)
    np.testing.assert_allclose(table.medians(), medians, rtol=0, atol=within)


def test_regions_are_as_long_as_those_of_the_exact_conditionals() -> None:
    table, exact = tabulated("relative")
    for d, one in enumerate(exact):
        for row, region in enumerate(one.highest_density_regions(0.9)):
            found = np.array(table.highest_density_region(row, d, mass=0.9))
            assert np.diff(found).sum() == pytest.approx(float(region.diff().sum()), abs=0.1)
