import pytest
import torch

from aem import AemError
from aem.conditionals.batch import EnergyForm
from aem.conditionals.conditional import Conditional
from aem.conditionals.normalizer import Quadrature
from tests.support.rough import rough_model, rows_of

GRID = torch.linspace(-40, 40, 40_001, dtype=torch.float64)
TIGHT = Quadrature(tolerance=1e-6)


def second(form: EnergyForm = "relative", proposal: str = "mixture") -> Conditional:
    model = rough_model(form, proposal, size=1.0)
    conditionals: list[Conditional] = model().conditionals(rows_of(model, 3), TIGHT)
    return conditionals[1]


@pytest.mark.parametrize("proposal", ["mixture", "uniform"])
@pytest.mark.parametrize("form", ["relative", "literal"])
def test_moments_and_cdf_agree_with_the_density_on_a_grid(form: EnergyForm, proposal: str) -> None:
    conditional = second(form, proposal)
    p = conditional.density(GRID)
    # The grid sees a bound of the uniform proposal to a step only.
    within = 1e-2 if proposal == "uniform" else 1e-5
    one = torch.ones(3, dtype=torch.float64)
    mean = torch.trapezoid(p * GRID, GRID)
    variance = torch.trapezoid(p * (GRID - mean[:, None]).square(), GRID)
    torch.testing.assert_close(torch.trapezoid(p, GRID), one, rtol=0, atol=within)
    torch.testing.assert_close(conditional.mean(), mean, rtol=0, atol=within)
    torch.testing.assert_close(conditional.variance(), variance, rtol=0, atol=within)
    torch.testing.assert_close(conditional.std(), variance.sqrt(), rtol=0, atol=within)
    cumulative = torch.cumulative_trapezoid(p, GRID)
    torch.testing.assert_close(
        conditional.cdf(GRID[1::500]), cumulative[:, ::500], rtol=0, atol=within
    )


@pytest.mark.parametrize(
    ("degrees", "mean", "variance"), [(1.0, False, False), (1.5, True, False), (4.0, True, True)]
)
def test_heavy_tails_have_the_moments_their_proposal_has(
    degrees: float, mean: bool, variance: bool
) -> None:
    """With an energy that cannot tell where the moments come from, and one that ends the tails."""
    model = rough_model(proposal="student_t", size=1.0, top=3.0, degrees_of_freedom=degrees)
    conditional = model().conditionals(rows_of(model, 3))[1]
    assert bool(conditional.mean().isfinite().all()) == mean
    assert bool(conditional.variance().isfinite().all()) == variance
    assert bool((conditional.variance() == torch.inf).all()) == (mean and not variance)
    if variance:
        grown = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
        grid = grown.sinh()
        p = conditional.density(grid) * grown.cosh()
        expected = torch.trapezoid(p * grid, grown)
        square = torch.trapezoid(p * (grid - expected[:, None]).square(), grown)
        torch.testing.assert_close(conditional.mean(), expected, rtol=0, atol=3e-3)
        torch.testing.assert_close(conditional.variance(), square, rtol=1e-2, atol=0)
    literal = rough_model("literal", "student_t", size=1.0, degrees_of_freedom=degrees)
    conditional = literal().conditionals(rows_of(literal, 3))[1]
    assert conditional.mean().isfinite().all() and conditional.variance().isfinite().all()


def test_quantiles_invert_the_cdf_and_pit_is_that_of_the_row() -> None:
    model = rough_model()
    rows = rows_of(model, 3)
    conditional = model().conditionals(rows, TIGHT)[1]
    levels = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    torch.testing.assert_close(conditional.cdf(conditional.quantile(levels)), levels.expand(3, -1))
    own = conditional.cdf(rows[:, 1:])[:, 0]
    torch.testing.assert_close(conditional.pit(), own)
    with pytest.raises(AemError, match="between 0 and 1"):
        conditional.quantile(torch.tensor([1.5]))


@pytest.mark.parametrize("mass", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("proposal", ["mixture", "uniform"])
def test_highest_density_regions(proposal: str, mass: float) -> None:
    conditional = second(proposal=proposal)
    p = conditional.density(GRID)
    step = GRID[1] - GRID[0]
    for row, region in enumerate(conditional.highest_density_regions(mass)):
        assert bool((region[:, 1] > region[:, 0]).all())
        assert bool((region[1:, 0] > region[:-1, 1]).all())
        inside = ((region[:, :1] <= GRID) & (region[:, 1:] >= GRID)).any(0)
        held = float(p[row][inside].sum() * step)
        assert held == pytest.approx(mass, abs=1e-3)
        # No point outside is denser than one inside, and nothing of the same mass is smaller.
        assert float(p[row][~inside].max()) <= float(p[row][inside].min()) * 1.02 + 1e-6
        densest = p[row].sort(descending=True).values.cumsum(0) * step
        assert int((densest < mass).sum()) >= int(inside.sum()) * (1 - 1e-2) - 3


def test_a_region_of_two_modes_has_two_intervals() -> None:
    model = rough_model(proposal="uniform", size=0.0, features=1)
    with torch.no_grad():
        # f is a multiple of cos 3z: weight near one at the troughs, near zero at the crests
        model.energy.from_value.weight.zero_()
        model.energy.from_value.weight[0, 6] = 20.0
        model.energy.from_context.bias.zero_()
        model.energy.from_context.bias[0] = 20.0
        model.energy.final.weight.zero_()
        model.energy.final.weight[0, 0] = 1.0
    [region] = model().conditionals(torch.zeros(1))[0].highest_density_regions(0.8)
    assert len(region) >= 2


def test_one_row_has_no_batch_axis_and_units_are_those_of_the_data() -> None:
    model = rough_model()
    row = rows_of(model, 1)[0]
    first, conditional = model().conditionals(row)
    assert (first.column, conditional.column) == model.columns
    assert conditional.mean().shape == () and conditional.density(GRID[:7]).shape == (7,)
    joint = first.log_density(row[:1]) + conditional.log_density(row[1:])
    # Both within the tolerance: a conditional is refined until its CDF is right, too.
    torch.testing.assert_close(joint[0], model().log_prob(row), rtol=0, atol=Quadrature.tolerance)
    with pytest.raises(AemError, match="mass"):
        conditional.highest_density_regions(1.0)
