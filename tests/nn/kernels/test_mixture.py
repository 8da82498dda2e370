"""The fused mixture against PyTorch in float64, and its draws against what they should be."""

import pytest
import torch
from tests.support.triton_here import DEVICE, GPU

from aem.conditionals.proposals.base import Proposal
from aem.conditionals.proposals.gaussian import GaussianMixture
from aem.nn.kernels import applied
from aem.nn.kernels import mixture as kernel


def mixture(rows: int, components: int) -> list[torch.Tensor]:
    torch.manual_seed(rows + components)
    logits, locs = torch.randn(2, rows, components, device=DEVICE)
    return [logits, locs, 0.05 + torch.rand(rows, components, device=DEVICE)]


@pytest.mark.parametrize(("rows", "components", "nodes"), [(7, 5, 6), (50, 20, 20), (13, 2, 33)])
def test_log_density_and_its_gradient(
    rows: int,
    components: int,
    nodes: int,
) -> None:
    parts = mixture(rows, components)
    x, slope = torch.randn(2, rows, device=DEVICE)
    # As the network emits them: slices of one output.
    packed = torch.cat(parts, -1).requires_grad_()
    log_q, _, _ = applied(kernel.FusedMixture, x, *packed.split(components, -1), nodes)
    (found,) = torch.autograd.grad(log_q, packed, slope)
    exact = torch.cat(parts, -1).double().requires_grad_()
    reference = GaussianMixture(*exact.split(components, -1)).log_prob(x.double()[:, None])[:, 0]
    (expected,) = torch.autograd.grad(reference, exact, slope.double())
    torch.testing.assert_close(log_q.double(), reference, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def test_points_lie_in_their_strata_and_the_data_in_its_own() -> None:
    """By the order of components, each stratum of [0, 1) has one point; x has replaced one."""
    rows, components, nodes = 200, 6, 10
    parts = mixture(rows, components)
    x = torch.randn(rows, device=DEVICE)
    _, points, own = applied(kernel.FusedMixture, x, *parts, nodes)
    assert torch.equal(points.gather(-1, own[:, None])[:, 0], x)
    double = GaussianMixture(*(p.double() for p in parts))
    # A point of stratum s comes from a component whose share of [0, 1) meets the stratum.
    ends = double.log_weights.exp().cumsum(-1)
    starts = ends - double.log_weights.exp()
    strata = torch.arange(nodes, device=DEVICE) / nodes
    meets = (starts[:, None, :] < strata[:, None] + 1 / nodes) & (
        ends[:, None, :] > strata[:, None]
    )
    z = (points.double()[..., None] - double.locs[:, None, :]) / double.scales[:, None, :]
    u = starts[:, None, :] + (ends - starts)[:, None, :] * torch.special.ndtr(z)
    inside = (u > strata[:, None] - 1e-5) & (u < strata[:, None] + 1 / nodes + 1e-5)
    assert bool((inside & meets).any(-1).all())


def test_the_same_distribution_as_the_twin() -> None:
    """Moments of points and strata over many draws of one mixture."""
    count = 4000 if GPU else 800
    parts = [p.expand(count, -1).contiguous() for p in mixture(1, 4)]
    x = torch.linspace(-2, 2, count, device=DEVICE)
    torch.manual_seed(0)
    _, points, own = applied(kernel.FusedMixture, x, *parts, 8)
    _, other, others_own = Proposal.nodes_around(GaussianMixture(*parts), x, 8)
    for moment in (1, 2):
        a, b = points.pow(moment).mean(0), other.pow(moment).mean(0)
        spread = other.pow(moment).std(0) / count**0.5
        assert bool(((a - b).abs() < 6 * spread).all())
    counts = torch.stack([torch.bincount(o, minlength=8) for o in (own, others_own)]).double()
    assert float((counts[0] - counts[1]).abs().max()) < 6 * (count / 4) ** 0.5


@pytest.mark.parametrize(("rows", "components", "points"), [(7, 5, 6), (9, 20, 21), (13, 2, 1)])
def test_densities_and_draws_at_many_points(rows: int, components: int, points: int) -> None:
    parts = mixture(rows, components)
    double = GaussianMixture(*(p.double() for p in parts))
    x = 3 * torch.randn(rows, points, device=DEVICE)
    found = kernel.log_prob_at(x, *parts)
    torch.testing.assert_close(found.double(), double.log_prob(x.double()), rtol=1e-5, atol=1e-5)
    u = torch.rand(rows, points, device=DEVICE).clamp(1e-4, 1 - 1e-4)
    drawn = kernel.transport(u, *parts)
    torch.testing.assert_close(drawn.double(), double.transport(u.double()), rtol=1e-3, atol=1e-3)


def test_gradient_of_one_point() -> None:
    parts = [p.requires_grad_() for p in mixture(11, 4)]
    x, slope = torch.randn(2, 11, device=DEVICE)
    found = torch.autograd.grad(applied(kernel.FusedLogProb, x, *parts), parts, slope)
    exact = [p.detach().double().requires_grad_() for p in parts]
    log_q = GaussianMixture(*exact).log_prob(x.double()[:, None])[:, 0]
    expected = torch.autograd.grad(log_q, exact, slope.double())
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)
