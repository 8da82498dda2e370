"""A mixture in single precision beside the same in double, and tails that one panel is enough for."""

import pytest
import torch
from torch import Tensor

from aem.conditionals.coordinates import coordinates_for
from aem.conditionals.proposals.base import Measure
from aem.conditionals.proposals.gaussian import GaussianMixture
from aem.conditionals.proposals.laplace import Laplace
from aem.conditionals.proposals.mixture import Mixture
from tests.support.rough import given

DIGITS = 3e-6  # relative


def mixture(kind: str) -> Mixture:
    """Forty mixtures: narrow components far from zero, wide ones, and one without weight."""
    generator = torch.Generator().manual_seed(0)
    logits, locs = (torch.randn(40, 5, generator=generator).double() for _ in range(2))
    logits[:, 0], locs[:, 1] = -200.0, 3000.0 + locs[:, 1]
    scales = (2 * torch.randn(40, 5, generator=generator)).exp().double()
    scales[:, 1] = 1e-3
    if kind == "gaussian":
        return GaussianMixture(logits, locs, scales)
    return Mixture(logits, locs, scales, Laplace())


KINDS = pytest.mark.parametrize("kind", ["gaussian", "laplace"])


def single(proposal: Mixture) -> Measure:
    measure = proposal.in_single()
    assert measure is not proposal
    return measure


def panels(proposal: Mixture) -> Tensor:
    """Fifteen points close together, around quantiles and the narrow components."""
    levels = torch.tensor([1e-12, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-9], dtype=torch.float64)
    middle = proposal.icdf(levels.expand(40, -1))[:, torch.arange(40) % 6].diagonal()
    width = 0.1 * proposal.scales[:, 1:].amin(-1)
    return middle[:, None] + width[:, None] * torch.linspace(-1, 1, 15, dtype=torch.float64)


@KINDS
def test_densities_have_six_digits(kind: str) -> None:
    proposal = mixture(kind)
    x = panels(proposal)
    found, expected = single(proposal).density(x), proposal.density(x)
    visible = expected > 1e-25
    assert bool(visible.any(-1).all())
    # Far out an exponent is large, and a share of it is what a digit is there.
    torch.testing.assert_close(found[visible], expected[visible], rtol=1e-4, atol=0)
    near = expected > 1e-3
    torch.testing.assert_close(found[near], expected[near], rtol=10 * DIGITS, atol=0)


@KINDS
def test_probabilities_keep_their_digits_in_both_tails(kind: str) -> None:
    proposal = mixture(kind)
    low = proposal.icdf(
        torch.tensor([1e-30, 1e-20, 1e-10, 1e-3], dtype=torch.float64).expand(40, -1)
    )
    high = proposal.isf(
        torch.tensor([1e-3, 1e-10, 1e-20, 1e-30], dtype=torch.float64).expand(40, -1)
    )
    for points in (low, high):
        found, expected = single(proposal).masses(points), proposal.masses(points)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)
    both = torch.cat((low[:, -1:], high[:, :1]), -1)
    torch.testing.assert_close(single(proposal).mass(both), proposal.mass(both), rtol=0, atol=1e-6)


@KINDS
def test_rough_quantiles_are_right_to_a_quarter(kind: str) -> None:
    proposal, levels = mixture(kind), (1e-30, 1e-5, 0.02, 0.5)
    points = proposal.about(levels)
    assert points.shape == (40, 7)
    assert bool((points.diff(dim=-1) > 0).all())
    wanted = points.new_tensor(levels).log()
    assert float((proposal.cdf(points[:, :4]).log() - wanted).abs().max()) < 0.25
    assert float((proposal.sf(points[:, 4:]).log() - wanted[:3].flip(0)).abs().max()) < 0.25


def test_a_light_tail_has_one_first_panel_and_a_wide_component_two() -> None:
    one = torch.ones(2, 2, dtype=torch.float64)
    scales = torch.tensor([[1.0, 1.0], [1.0, 30.0]], dtype=torch.float64)
    logits = torch.tensor([[0.0, 0.0], [0.0, -14.0]], dtype=torch.float64)
    proposal = GaussianMixture(logits, 0 * one, scales)
    conditionals = given(lambda x: x, "relative", proposal, count=2)
    edges = coordinates_for(conditionals).edges()
    assert [(row.diff() > 0).sum().item() for row in edges] == [4, 6]


def three_modes(middle: float) -> GaussianMixture:
    """Two heavy components far apart, and a light one between them."""
    weights, locs = torch.tensor([[0.5, middle, 0.5]]).double(), torch.tensor([[-6.0, 0.0, 6.0]])
    return GaussianMixture(weights.log(), locs.double(), torch.full((1, 3), 0.5).double())


@pytest.mark.parametrize("weight", [1e-4, 1e-6, 1e-8])
def test_a_light_component_between_heavy_ones_keeps_its_digits(weight: float) -> None:
    """Its probabilities are differences of CDFs that single precision cannot tell from one half."""
    proposal = three_modes(weight)
    points = torch.linspace(-1.5, 1.5, 16, dtype=torch.float64)[None]
    found = single(proposal).masses(points)
    standard = torch.distributions.Normal(torch.zeros(()).double(), 0.5)
    # What the heavy ones add is far below.
    expected = weight / (1 + weight) * standard.cdf(points).diff()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-16)
