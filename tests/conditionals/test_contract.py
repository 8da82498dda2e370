"""The contract of a proposal and its head, for every kind in the registry."""

import math

import pytest
import torch
from torch import Tensor

from aem import AemError, ModelConfig
from aem.conditionals.proposals.base import Proposal
from aem.config import PROPOSALS
from tests.support.kinds import (
    FALSE_ALARM,
    configured,
    every_kind,
    head_of,
    integrals,
    levels,
    points_of,
    proposal_of,
    uniformity,
)

DRAWS = 4000


@every_kind
def test_what_the_line_says_is_what_the_class_says(kind: str) -> None:
    config = configured(kind)
    head, proposal = head_of(kind), proposal_of(kind)
    assert head.bounded == proposal.bounded == PROPOSALS[config.proposal].bounded
    assert head.terms == proposal.terms
    assert head.initial_bias().shape == (head.size,)


@every_kind
@torch.no_grad()
def test_density_integrates_to_the_mass_between_quantiles(kind: str) -> None:
    """Also far out, where it is a tiny share of one."""
    q = proposal_of(kind).flatten()
    points = points_of(q)
    found = integrals(lambda x: q.log_prob(x).exp(), points, 1e-7)
    torch.testing.assert_close(found.sum(-1), torch.ones(4).double(), rtol=0, atol=1e-7)
    pairs = torch.stack((points[:, :-1], points[:, 1:]), -1)
    expected = torch.stack([q.mass(pair) for pair in pairs.unbind(1)], -1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(q.density(points), q.log_prob(points).exp(), rtol=1e-10, atol=1e-300)


@every_kind
@torch.no_grad()
def test_cdf_survival_function_and_quantiles_are_inverse_to_each_other(kind: str) -> None:
    q = proposal_of(kind)
    inner = levels(q, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.9, 1 - 1e-6, 1 - 1e-12)
    far = levels(q, 1e-30, 1e-20, 1e-15, 1e-9, 1e-3)
    pairs = ((q.cdf, q.icdf, inner), (q.cdf, q.icdf, far), (q.sf, q.isf, far))
    for function, inverse, u in pairs:
        x = inverse(u)
        # No better than the spacing of numbers around x allows.
        spacing = 8 * 2.3e-16 * x.abs() * q.log_prob(x).exp()
        assert bool(((function(x) - u).abs() <= 1e-12 * u + spacing).all())
        assert bool((x.diff(dim=-1) * x[..., -1:].sub(x[..., :1]).sign() >= 0).all()), "monotone"
    x = q.icdf(inner)
    torch.testing.assert_close(q.cdf(x) + q.sf(x), torch.ones_like(x), rtol=0, atol=1e-15)


@every_kind
def test_quantiles_at_the_ends_are_finite(kind: str) -> None:
    q = proposal_of(kind)
    for some in (q, q.changed(Tensor.float)):
        ends = levels(some, 0.0, 1.0)
        for sent in (some.icdf(ends), some.isf(ends), some.transport(ends)):
            assert bool(sent.isfinite().all())


@every_kind
@torch.no_grad()
def test_the_mirrored_proposal_is_the_distribution_of_minus_x(kind: str) -> None:
    q = proposal_of(kind)
    other, x = q.mirrored(), q.icdf(levels(q, 1e-9, 0.1, 0.5, 0.8, 1 - 1e-9))
    torch.testing.assert_close(other.log_prob(-x), q.log_prob(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(other.cdf(-x), q.sf(x), rtol=1e-12, atol=0)
    torch.testing.assert_close(other.sf(-x), q.cdf(x), rtol=1e-12, atol=0)


@every_kind
@torch.no_grad()
def test_selected_flattened_and_doubled_proposals_are_the_same(kind: str) -> None:
    q = proposal_of(kind, rows=3)
    x = q.icdf(levels(q, 0.01, 0.4, 0.9))
    index = torch.tensor([4, 0, 4, 5])
    assert q.flatten().batch.shape == (6,)
    for name in ("log_prob", "cdf", "sf", "density"):
        expected = getattr(q, name)(x)
        flat = getattr(q.flatten(), name)(x.flatten(0, 1))
        torch.testing.assert_close(flat, expected.flatten(0, 1), rtol=1e-14, atol=0)
        some = getattr(q.flatten().select(index), name)(x.flatten(0, 1)[index])
        torch.testing.assert_close(some, expected.flatten(0, 1)[index], rtol=1e-14, atol=0)
    single = q.changed(Tensor.float)
    assert single.batch.dtype == single.log_prob(x.float()).dtype == torch.float32
    assert single.double().batch.dtype == torch.float64
    torch.testing.assert_close(single.double().cdf(x), q.cdf(x), rtol=0, atol=1e-5)
    torch.testing.assert_close(single.cdf(x.float()), q.cdf(x).float(), rtol=0, atol=1e-5)


@every_kind
@torch.no_grad()
def test_transport_draws_and_position_is_its_inverse(kind: str) -> None:
    q = proposal_of(kind).flatten().select(torch.tensor([1]))
    draws = q.transport(torch.rand(1, DRAWS, dtype=torch.float64))[0]
    assert uniformity(q.cdf(draws[None])) > FALSE_ALARM
    many = q.select(torch.zeros(DRAWS, dtype=torch.long))
    u = many.position(draws)
    assert bool(((u >= 0) & (u <= 1)).all())
    assert uniformity(u) > FALSE_ALARM
    back = many.transport(u[:, None])[:, 0]
    assert float(((back - draws).abs() * q.log_prob(draws[None])[0].exp()).max()) < 1e-9


@every_kind
@torch.no_grad()
def test_nodes_around_data_lie_one_in_each_stratum(kind: str) -> None:
    strata = 10
    q = proposal_of(kind).flatten().select(torch.zeros(500, dtype=torch.long))
    x = q.transport(torch.rand(500, 1, dtype=torch.float64))[:, 0]
    log_q, nodes, own = q.nodes_around(x, strata)
    torch.testing.assert_close(log_q, q.log_prob(x[:, None])[:, 0])
    torch.testing.assert_close(nodes.gather(-1, own[:, None])[:, 0], x, rtol=0, atol=0)
    # Were the data no draws of the proposal, all others would still be.
    others = nodes[torch.arange(strata)[None] != own[:, None]]
    assert uniformity(q.select(torch.zeros(1, dtype=torch.long)).cdf(others[None])) > FALSE_ALARM
    if type(q).transport is Proposal.transport:
        stratum = (q.cdf(nodes) * strata).floor()
        assert torch.equal(stratum, torch.arange(strata).double().expand_as(stratum))


@every_kind
@torch.no_grad()
def test_the_mass_of_a_cell_has_a_logarithm_however_far_out(kind: str) -> None:
    q = proposal_of(kind)
    low, width = q.icdf(levels(q, 0.3))[..., 0], 0.05
    found = q.log_mass(low, width)
    ends = torch.stack((low, low + width), -1)
    torch.testing.assert_close(found, q.mass(ends).log(), rtol=1e-10, atol=1e-12)
    if q.bounded:
        return
    for far in (-1e3, 1e3):
        cell = torch.full_like(low, far)
        nearby = q.log_prob(torch.stack((cell, cell + width), -1)) + math.log(width)
        found = q.log_mass(cell, width)
        assert bool((found <= nearby.amax(-1) + 1e-6).all())
        assert bool((found >= nearby.amin(-1) - 1e-6).all())


@every_kind
@torch.no_grad()
def test_moments_are_those_of_the_density_or_do_not_exist(kind: str) -> None:
    q = proposal_of(kind).flatten()
    points = points_of(q)
    mean, deviation = q.moments()
    assert q.heavy_tailed or bool(mean.isfinite().all() and deviation.isfinite().all())

    def check(power: int, centre: Tensor, moment: Tensor) -> None:
        def integrand(x: Tensor) -> Tensor:
            return (x - centre[:, None]) ** power * q.log_prob(x).exp()

        parts = integrals(integrand, points, 1e-6)
        if bool(moment.isfinite().all()):
            assert float((parts.sum(-1) - moment).abs().max()) < 1e-4 * float(1 + deviation.max())
        else:  # pieces of a tail weigh the same, or the more the further out they are
            assert bool((parts[:, 0].abs() > 0.9 * parts[:, 5].abs()).all())

    check(1, torch.zeros_like(mean), mean)
    check(2, mean.nan_to_num(), deviation.square())


@every_kind
def test_gradients_agree_with_finite_differences(kind: str) -> None:
    head = head_of(kind)
    torch.manual_seed(1)
    phi = torch.randn(2, 2, head.size, dtype=torch.float64, requires_grad=True)
    past = torch.randn(2, 2, dtype=torch.float64)
    x = torch.randn(2, 2, 3, dtype=torch.float64)

    def log_prob(phi: Tensor) -> Tensor:
        proposal: Proposal = head(phi, None, past)
        return proposal.log_prob(x)

    if head.size:
        torch.autograd.gradcheck(log_prob, (phi,))
    else:
        assert not log_prob(phi).requires_grad


@every_kind
def test_a_head_says_the_same_of_one_feature_and_of_all(kind: str) -> None:
    head = head_of(kind)
    phi = torch.randn(5, 2, head.size, dtype=torch.float64)
    rows = torch.randn(5, 2, dtype=torch.float64)
    every: Proposal = head(phi, None, rows)
    for feature in range(2):
        one: Proposal = head(phi[:, feature], feature, rows[:, :feature])
        torch.testing.assert_close(
            one.cdf(rows[:, feature, None]), every.cdf(rows[..., None])[:, feature]
        )


def test_names_that_are_not_registered_are_refused() -> None:
    with pytest.raises(AemError, match=r"'proposal' must be one of mixture, .* not 'gaussian'"):
        ModelConfig(proposal="gaussian")


@every_kind
def test_log_densities_and_probabilities_are_differentiable_in_the_parameters(kind: str) -> None:
    """As gradients of log densities need; held against central differences."""
    q = proposal_of(kind)
    if q.bounded:
        return  # its bounds are no parameters
    x = q.icdf(levels(q, 1e-9, 0.1, 0.4, 0.7)).detach()
    ends = torch.stack((x[..., 1], x[..., 2]), -1)
    step = 1e-6

    def numbers(proposal: Proposal) -> Tensor:
        below, above = proposal.cdf(x), proposal.sf(x)
        return torch.cat((proposal.log_prob(x), below, above, proposal.mass(ends)[..., None]), -1)

    parts: list[Tensor] = []

    def leaf(part: Tensor) -> Tensor:
        parts.append(part.detach().requires_grad_())
        return parts[-1]

    value = numbers(q.changed(leaf))
    weight, along = torch.randn_like(value), [torch.randn_like(part) for part in parts]
    gradient = torch.autograd.grad((weight * value).sum(), parts)
    found = sum((g * direction).sum() for g, direction in zip(gradient, along, strict=True))

    def moved(sign: float) -> Tensor:
        rest = iter(along)
        with torch.no_grad():
            proposal = q.changed(lambda part: part.detach() + sign * step * next(rest))
            return (weight * numbers(proposal)).sum()

    torch.testing.assert_close(found, (moved(1) - moved(-1)) / (2 * step), rtol=1e-6, atol=1e-7)
