import math

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal

from aem.conditionals.proposals.base import Proposal, stratified_uniforms
from aem.conditionals.proposals.gaussian import GaussianHead, GaussianMixture
from aem.conditionals.proposals.uniform import FixedUniform, UniformHead
from aem.errors import AemError

FALSE_ALARM = 1e-6  # of each Kolmogorov–Smirnov test, were its seed not fixed
DRAWS = 20_000

# log weights, locations, scales
MIXTURES = {
    "normal": ([0.0], [0.3], [1.7]),
    "overlapping": ([0.5, -1.0, 0.0], [-1.0, 0.0, 0.8], [0.5, 2.0, 0.3]),
    "needles": ([0.0, 0.0, 0.0], [-5.0, 0.0, 5.0], [1e-3, 1e-3, 1e-3]),
    "needle in a hill": ([-3.0, 0.0], [0.4, 0.0], [1e-3, 1.0]),
    "weightless": ([0.0, -800.0, 0.0], [-2.0, 100.0, 2.0], [0.5, 1e-3, 1.0]),
}


def mixture(name: str) -> GaussianMixture:
    """A batch [1, 2] of the named mixture and a moved copy of it, in float64."""
    logits, locs, scales = (torch.tensor([[p, p]], dtype=torch.float64) for p in MIXTURES[name])
    return GaussianMixture(logits, locs + torch.tensor([[[0.0], [1.5]]]), scales)


def reference(q: GaussianMixture) -> MixtureSameFamily:
    return MixtureSameFamily(Categorical(logits=q.log_weights), Normal(q.locs, q.scales))


def uniform() -> FixedUniform:
    low = torch.tensor([[-2.0, 1.0]], dtype=torch.float64)
    return FixedUniform(low, low + torch.tensor([[0.5, 8.0]], dtype=torch.float64))


def nodes(q: Proposal) -> Tensor:
    """Points where the proposal has mass, [1, 2, S]."""
    u = torch.linspace(0.001, 0.999, 101, dtype=torch.float64)
    return q.transport(u.expand(1, 2, 101))


every_mixture = pytest.mark.parametrize("name", MIXTURES)
every_proposal = pytest.mark.parametrize("name", [*MIXTURES, "uniform"])


def proposal(name: str) -> GaussianMixture | FixedUniform:
    return uniform() if name == "uniform" else mixture(name)


def uniformity(u: Tensor) -> float:
    """The Kolmogorov–Smirnov test's p-value for uniforms on [0, 1]."""
    return float(stats.kstest(u.numpy(), "uniform").pvalue)


@every_mixture
def test_density_and_cdf_agree_with_torch(name: str) -> None:
    q = mixture(name)
    x = torch.cat((nodes(q), torch.linspace(-40, 40, 81).double().expand(1, 2, 81)), -1)
    torch_q = reference(q)
    by_node = x.movedim(-1, 0)
    expected = torch_q.log_prob(by_node).movedim(0, -1)
    torch.testing.assert_close(q.log_prob(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(q.density(x), expected.exp(), rtol=1e-12, atol=1e-300)
    # torch's own cdf goes through erf, which has no digits left below 1e-16.
    expected = torch_q.cdf(by_node).movedim(0, -1)
    torch.testing.assert_close(q.cdf(x), expected, rtol=0, atol=1e-14)


@every_mixture
def test_moments_are_those_of_torch(name: str) -> None:
    q = mixture(name)
    mean, deviation = q.moments()
    torch.testing.assert_close(mean, reference(q).mean)
    torch.testing.assert_close(deviation, reference(q).variance.sqrt())


@every_proposal
def test_density_integrates_to_the_cdf(name: str) -> None:
    q = proposal(name)
    # The trapezoid rule is exact to rounding for Gaussians that span a few steps of it.
    x = torch.linspace(-20, 20, 400_001, dtype=torch.float64).expand(1, 2, -1)
    mass = torch.cumulative_trapezoid(q.log_prob(x).exp(), x)
    torch.testing.assert_close(q.cdf(x[..., 1:]), mass, rtol=0, atol=3e-4)  # needles, edges
    assert mass[..., -1].sub(1).abs().max() < (2e-4 if name == "uniform" else 1e-9)


@every_mixture
def test_quantiles_invert_the_cdf(name: str) -> None:
    q = mixture(name)
    extreme = [1e-300, 1e-100, 1e-20, 1e-9, 1e-4]
    inner = torch.linspace(0.01, 0.99, 99).tolist()
    edges = [1 / 3 - 1e-12, 1 / 3, 1 / 3 + 1e-12, 0.5]  # between modes the density is nearly zero
    u = torch.tensor([*extreme, *inner, *edges, 1 - 1e-9, 1 - 1e-15], dtype=torch.float64)
    u = u.expand(1, 2, -1)
    x = q.icdf(u)
    assert x.isfinite().all()
    # A quantile can be no better than the spacing of numbers around it allows.
    spacing = x.abs().clamp_min(1) * 2.3e-16
    miss = (q.cdf(x) - u).abs()
    assert (miss <= 1e-12 * u + 8 * spacing * q.log_prob(x).exp()).all()
    assert (x.sort(-1).values == x.gather(-1, u.argsort(-1))).all(), "monotone"


@every_mixture
def test_cdf_then_quantile_returns_the_point(name: str) -> None:
    q = mixture(name)
    x = nodes(q)
    density = q.log_prob(x).exp()
    assert ((q.icdf(q.cdf(x)) - x).abs() * density).max() < 1e-12


@pytest.mark.parametrize("u", [0.0, 1.0])
def test_quantiles_at_the_ends_are_finite(u: float) -> None:
    for dtype in (torch.float32, torch.float64):
        parts = (torch.zeros(1, 2), torch.tensor([[-1.0, 1.0]]), torch.ones(1, 2))
        q = GaussianMixture(*(p.to(dtype) for p in parts))
        assert q.icdf(torch.full((1, 1), u, dtype=dtype)).isfinite().all()
        assert q.transport(torch.full((1, 1), u, dtype=dtype)).isfinite().all()


@every_proposal
def test_transport_of_uniforms_is_an_exact_sampler(name: str) -> None:
    q = proposal(name)
    draws = q.transport(torch.rand(1, 2, DRAWS, dtype=torch.float64))
    assert all(uniformity(u) > FALSE_ALARM for u in q.cdf(draws)[0])


@every_proposal
def test_position_is_uniform_and_transport_returns_the_point(name: str) -> None:
    q = proposal(name)
    if isinstance(q, GaussianMixture):
        x = reference(q).sample(torch.Size((DRAWS,)))
    else:
        x = q.low + (q.high - q.low) * torch.rand(DRAWS, 1, 2, dtype=torch.float64)
    flat = q.flatten()
    for i in range(2):
        many = flat.select(torch.full((DRAWS,), i))
        u = many.position(x[:, 0, i])
        assert u.min() >= 0 and u.max() <= 1
        assert uniformity(u) > FALSE_ALARM
        error = (many.transport(u[:, None])[:, 0] - x[:, 0, i]).abs()
        assert (error * many.log_prob(x[:, 0, i, None])[:, 0].exp()).max() < 1e-9


@pytest.mark.parametrize("count", [2, 3, 20, 1000])
def test_each_stratum_holds_exactly_one_node(count: int) -> None:
    u = stratified_uniforms(torch.zeros(50, 3, dtype=torch.float64), count)
    assert torch.equal((u * count).floor(), torch.arange(count).double().expand(50, 3, count))
    within = (u * count).remainder(1).flatten()
    assert uniformity(within) > FALSE_ALARM
    for q in (mixture("normal"), uniform()):
        stratum = q.cdf(q.transport(u[:1, :2])) * count
        assert torch.equal(stratum.floor()[0, 0], torch.arange(count).double())


def test_single_precision_uniforms_stay_below_one() -> None:
    u = stratified_uniforms(torch.zeros(20_000), 1000)
    assert u.max() < 1


@pytest.mark.parametrize("min_scale", [1e-3, 0.1])
def test_scales_never_fall_below_the_minimum(min_scale: float) -> None:
    head = GaussianHead(4, min_scale)
    for phi in (torch.full((5, 12), -1e4), 1e3 * torch.randn(200, 12)):
        q = head(phi)
        assert (q.scales >= min_scale).all()
        assert q.log_prob(q.locs).isfinite().all()


def test_head_keeps_low_precision_out_of_the_mixture() -> None:
    head = GaussianHead(2, 1e-3)
    assert head(torch.zeros(3, 6, dtype=torch.bfloat16)).locs.dtype is torch.float32
    assert head(torch.zeros(3, 6, dtype=torch.float64)).locs.dtype is torch.float64


def test_fresh_mixture_covers_standardised_data() -> None:
    head = GaussianHead(10, 1e-3)
    q = head(head.initial_bias())
    x = torch.linspace(-3, 3, 61)
    assert (q.log_prob(x) - Normal(0.0, 1.0).log_prob(x)).abs().max() < 1
    assert q.moments()[0].abs() < 1e-6


def test_uniform_has_no_mass_outside_its_bounds() -> None:
    q = uniform()
    x = torch.tensor([-2.01, -2.0, -1.5, -1.49], dtype=torch.float64).expand(1, 2, 4)
    log_q = q.log_prob(x)[0, 0]
    assert log_q.tolist() == [-math.inf, math.log(2), math.log(2), -math.inf]


def test_uniform_bounds_follow_their_feature() -> None:
    head = UniformHead(torch.tensor([0.0, -1.0]), torch.tensor([1.0, 3.0]))
    everything = head(torch.zeros(5, 2, 0))
    second = head(torch.zeros(5, 0), 1)
    x = torch.full((5, 1), 2.0)
    assert torch.equal(second.log_prob(x), everything.log_prob(x[:, None].expand(5, 2, 1))[:, 1])
    with pytest.raises(AemError, match="low < high"):
        UniformHead(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0]))


def test_quantiles_where_newton_swings_between_two_modes() -> None:
    """Found in a trained model: steps from one mode to the other and back, inside the bracket."""
    weights = torch.tensor([0.5152, 0.3, 0.1848], dtype=torch.float64)
    locs = torch.tensor([-1.0, 0.232, 1.0], dtype=torch.float64)
    scales = torch.tensor([0.3, 0.1203, 0.3], dtype=torch.float64)
    mixture = GaussianMixture(weights.log()[None], locs[None], scales[None])
    u = torch.linspace(0.0005, 0.9995, 20_000, dtype=torch.float64)[None]
    torch.testing.assert_close(mixture.cdf(mixture.icdf(u)), u, rtol=0, atol=1e-12)
    many = torch.Generator().manual_seed(0)
    locs = torch.randn(300, 20, generator=many, dtype=torch.float64)
    scales = 0.03 + 0.3 * torch.rand(300, 20, generator=many, dtype=torch.float64) ** 2
    mixture = GaussianMixture(torch.zeros_like(locs), locs, scales)
    u = torch.rand(300, 500, generator=many, dtype=torch.float64)
    torch.testing.assert_close(mixture.cdf(mixture.icdf(u)), u, rtol=0, atol=1e-12)
