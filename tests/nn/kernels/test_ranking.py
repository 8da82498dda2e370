"""The ranking of the data among its nodes, against the same in float64."""

import math

import pytest
import torch
from tests.support.triton_here import DEVICE
from torch import Tensor
from torch.nn import functional as F

from aem.conditionals.batch import DEPTH
from aem.nn.kernels import applied
from aem.nn.kernels import ranking as kernel


def twin(f: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    s = F.softplus(f)
    log_w = -s / (1 + s / DEPTH)
    total = log_w.logsumexp(-1) - math.log(f.shape[-1])
    return log_w.gather(-1, own[:, None])[:, 0] - total, total


@pytest.mark.parametrize(("count", "nodes"), [(1, 1), (7, 5), (300, 20), (33, 64), (5, 128)])
def test_value_and_gradient_agree_with_the_twin(count: int, nodes: int) -> None:
    torch.manual_seed(count)
    # From deep in one tail of the softplus to deep in the other.
    f = (8 * torch.randn(count, nodes, device=DEVICE)).requires_grad_()
    own = torch.randint(nodes, (count,), device=DEVICE)
    slopes = torch.randn(2, count, device=DEVICE).unbind()
    found = applied(kernel.FusedRanking, f, own, DEPTH)
    (by_f,) = torch.autograd.grad(found, f, slopes)
    exact = f.detach().double().requires_grad_()
    expected = twin(exact, own)
    (exact_by_f,) = torch.autograd.grad(expected, exact, [slope.double() for slope in slopes])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(by_f.double(), exact_by_f, atol=1e-6, rtol=1e-4)


def test_extreme_energies_stay_finite() -> None:
    f = torch.tensor([[1e30, -1e30, 0.0], [1e30, 1e30, 1e30]], device=DEVICE, requires_grad=True)
    own = torch.tensor([0, 2], device=DEVICE)
    found, log_z = applied(kernel.FusedRanking, f, own, DEPTH)
    (by_f,) = torch.autograd.grad(found.sum() + log_z.sum(), f)
    assert bool(found.isfinite().all()) and bool(log_z.isfinite().all())
    assert bool(by_f.isfinite().all())
    assert found[1].item() == pytest.approx(0.0, abs=1e-6)
