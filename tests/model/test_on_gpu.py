"""Scores and draws through the kernels of a GPU, held against a processor's float64."""

import pytest
from scipy import stats

from aem import AEM
from aem.conditionals.batch import EnergyForm
from aem.conditionals.normalizer import Quadrature
from tests.support.rough import rough_model, rows_of

pytestmark = pytest.mark.gpu
FEW_ROWS, MANY_ROWS = 50, 20_000  # one that leaves the device idle, one of more than a block


def wide_enough(energy: EnergyForm = "relative") -> AEM:
    """A rough model whose energy network is one for the kernels."""
    return rough_model(energy, features=3, size=1.0, top=10.0, energy_hidden=64)


@pytest.mark.parametrize("energy", ["relative", "literal"])
def test_scores_are_those_of_a_processor_within_the_stated_error(energy: EnergyForm) -> None:
    model = wide_enough(energy)
    rows = rows_of(model, 40)
    fine = model().scores(rows, Quadrature(tolerance=1e-8))
    there = model.cuda()().scores(rows.cuda())
    assert bool(there.converged.all())
    # 1e-5 a conditional is what energies in float32 may cost.
    allowed = there.error.cpu() + fine.error + 1e-5
    assert bool(((there.log_prob.cpu() - fine.log_prob).abs() <= allowed).all())


@pytest.mark.parametrize("rows", [FEW_ROWS, MANY_ROWS])
@pytest.mark.parametrize("method", ["exact", "resample"])
def test_draws_follow_the_model(rows: int, method: str) -> None:
    """Fails by chance with probability 1e-3 a column; resampling of 100 is not told apart so far."""
    model = wide_enough()
    drawn = model.cuda()().sample((rows,), method=method)
    assert drawn.shape == (rows, 3)
    some = drawn[-min(rows, 1000) :].cpu().double()
    for column in model.cpu()().cdf(some).unbind(-1):
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-3
