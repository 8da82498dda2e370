"""Scores and draws through the kernels of a GPU, held against a processor's float64."""

import pytest
import torch
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


@pytest.mark.parametrize("energy", ["relative", "literal"])
def test_gradients_are_those_of_a_processor(energy: EnergyForm) -> None:
    model = wide_enough(energy)
    rows = rows_of(model, 4)
    found = []
    for device in ("cpu", "cuda"):
        leaf = rows.to(device).requires_grad_()
        log_prob, _ = model.to(device)().log_prob_and_error(leaf, 1e-8)
        found.append(torch.autograd.grad(log_prob.sum(), leaf)[0].cpu())
    scale = float(found[0].abs().max())
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5 * scale)


def test_draws_carry_gradients() -> None:
    model = rough_model(context=2, features=3, size=1.0, top=10.0, energy_hidden=64).cuda()
    context = torch.zeros(5, 2, device="cuda", requires_grad=True)
    model(context).rsample((3,)).sum().backward()
    assert context.grad is not None and bool(context.grad.isfinite().all())
    assert model.arnn.final.bias.grad is not None
