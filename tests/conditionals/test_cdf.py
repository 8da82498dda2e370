import pytest
import torch
from scipy import stats

from aem import AemError
from aem.conditionals.batch import EnergyForm
from aem.conditionals.cdf import PanelCDF
from aem.conditionals.normalizer import Quadrature, normalizer
from tests.support.rough import flat_conditionals, given, rough_model

LEVELS = torch.tensor([1e-9, 1e-4, 0.01, 0.2, 0.5, 0.77, 0.99, 1 - 1e-6], dtype=torch.float64)


@pytest.mark.parametrize("proposal", ["mixture", "uniform"])
@pytest.mark.parametrize("form", ["relative", "literal"])
@torch.no_grad()
def test_cdf_against_the_trapezoid_rule_and_its_inverse(form: EnergyForm, proposal: str) -> None:
    conditionals = flat_conditionals(rough_model(form, proposal, size=1.0), 3)
    count = len(conditionals.projected)
    computed = normalizer(conditionals, Quadrature(), tolerance=1e-7, keep_panels=True)
    cdf = PanelCDF.of(computed)
    x = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    for i in range(0, count, 2):
        one = conditionals.select(torch.tensor([i]))
        log_p = one.log_unnormalized(x[None])[0] - computed.log_z[i]
        steps = torch.cumulative_trapezoid(log_p.exp(), x)
        f = cdf.at_coordinate(
            cdf.coordinates.select(torch.tensor([i])).coordinate(x[None, 1::500])[0],
            torch.full((len(x[1::500]),), i),
        )
        # The grid resolves a jump at a bound of a uniform proposal only to a step.
        assert float((f - steps[::500]).abs().max()) < (2e-4 if proposal == "uniform" else 1e-6)
    levels = LEVELS.expand(count, -1).contiguous()
    quantiles = cdf.icdf(levels)
    assert bool((quantiles.diff(dim=-1) > 0).all())
    torch.testing.assert_close(cdf.cdf(quantiles), levels, rtol=0, atol=1e-12)


def test_the_whole_line_has_probability_one_and_nothing_none() -> None:
    conditionals = flat_conditionals(rough_model(), 4)
    cdf = PanelCDF.of(normalizer(conditionals, Quadrature(), tolerance=1e-8, keep_panels=True))
    ends = torch.tensor([-1e300, -1e30, 1e30, 1e300], dtype=torch.float64).expand(8, 4)
    expected = torch.tensor([0.0, 0, 1, 1], dtype=torch.float64).expand(8, 4)
    torch.testing.assert_close(cdf.cdf(ends.contiguous()), expected, rtol=0, atol=1e-9)


def test_logistic_quantiles_far_beyond_the_proposal() -> None:
    """f = |x|·k + c with c large is a Laplace density; the proposal is a standard normal."""
    computed = normalizer(
        given(lambda x: 0.1 * x.abs() + 40), Quadrature(), tolerance=1e-9, keep_panels=True
    )
    found = PanelCDF.of(computed).icdf(LEVELS[None])[0]
    torch.testing.assert_close(
        found, torch.from_numpy(stats.laplace(scale=10).ppf(LEVELS.numpy())), rtol=1e-6, atol=1e-6
    )


def test_panels_are_needed() -> None:
    computed = normalizer(flat_conditionals(rough_model(), 1), Quadrature(), tolerance=1e-3)
    with pytest.raises(AemError, match="panels"):
        PanelCDF.of(computed)
