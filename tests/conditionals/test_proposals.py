import math

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal
from torch.distributions import Laplace as TorchLaplace
from torch.distributions import StudentT as TorchStudentT

from aem.conditionals.proposals.base import Proposal, stratified_uniforms
from aem.conditionals.proposals.components import Component
from aem.conditionals.proposals.gaussian import NORMAL, GaussianHead, GaussianMixture
from aem.conditionals.proposals.laplace import Laplace
from aem.conditionals.proposals.mixture import Mixture
from aem.conditionals.proposals.student_t import StudentT
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


COMPONENTS: dict[str, Component] = {
    "normal": NORMAL,
    "laplace": Laplace(),
    "student": StudentT(2.5),
    "cauchy": StudentT(1.0),
}


def mixture(name: str, component: str = "normal") -> Mixture:
    """A batch [1, 2] of the named mixture and a moved copy of it, in float64."""
    logits, locs, scales = (torch.tensor([[p, p]], dtype=torch.float64) for p in MIXTURES[name])
    locs = locs + torch.tensor([[[0.0], [1.5]]])
    if component == "normal":
        return GaussianMixture(logits, locs, scales)
    return Mixture(logits, locs, scales, COMPONENTS[component])


def reference(q: Mixture) -> MixtureSameFamily:
    components: Distribution = Normal(q.locs, q.scales)
    if isinstance(q.component, Laplace):
        components = TorchLaplace(q.locs, q.scales)
    if isinstance(q.component, StudentT):
        components = TorchStudentT(torch.full_like(q.locs, q.component.degrees), q.locs, q.scales)
    return MixtureSameFamily(Categorical(logits=q.log_weights), components)


def uniform() -> FixedUniform:
    low = torch.tensor([[-2.0, 1.0]], dtype=torch.float64)
    return FixedUniform(low, low + torch.tensor([[0.5, 8.0]], dtype=torch.float64))


def nodes(q: Proposal) -> Tensor:
    """Points where the proposal has mass, [1, 2, S]."""
    u = torch.linspace(0.001, 0.999, 101, dtype=torch.float64)
    return q.transport(u.expand(1, 2, 101))


every_mixture = pytest.mark.parametrize("name", MIXTURES)
every_component = pytest.mark.parametrize("component", COMPONENTS)
every_proposal = pytest.mark.parametrize("name", [*MIXTURES, "uniform"])


def proposal(name: str) -> Mixture | FixedUniform:
    return uniform() if name == "uniform" else mixture(name)


def uniformity(u: Tensor) -> float:
    """The Kolmogorov–Smirnov test's p-value for uniforms on [0, 1]."""
    return float(stats.kstest(u.numpy(), "uniform").pvalue)


@every_mixture
@every_component
def test_density_and_cdf_agree_with_torch(component: str, name: str) -> None:
    q = mixture(name, component)
    x = torch.cat((nodes(q), torch.linspace(-40, 40, 81).double().expand(1, 2, 81)), -1)
    torch_q = reference(q)
    by_node = x.movedim(-1, 0)
    expected = torch_q.log_prob(by_node).movedim(0, -1)
    torch.testing.assert_close(q.log_prob(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(q.density(x), expected.exp(), rtol=1e-12, atol=1e-300)
    if isinstance(q.component, StudentT):
        own = stats.t.cdf(q._standardise(x).numpy(), q.component.degrees)
        expected = (q.log_weights.exp()[..., None, :] * torch.from_numpy(own)).sum(-1)
    else:  # through erf, which has no digits left below 1e-16
        expected = torch_q.cdf(by_node).movedim(0, -1)
    torch.testing.assert_close(q.cdf(x), expected, rtol=0, atol=1e-14)


@every_mixture
@every_component
def test_moments_are_those_of_torch(component: str, name: str) -> None:
    q = mixture(name, component)
    mean, deviation = q.moments()
    torch.testing.assert_close(mean, reference(q).mean, equal_nan=True)
    torch.testing.assert_close(deviation, reference(q).variance.sqrt(), equal_nan=True)


@every_proposal
def test_density_integrates_to_the_cdf(name: str) -> None:
    q = proposal(name)
    # The trapezoid rule is exact to rounding for Gaussians that span a few steps of it.
    x = torch.linspace(-20, 20, 400_001, dtype=torch.float64).expand(1, 2, -1)
    mass = torch.cumulative_trapezoid(q.log_prob(x).exp(), x)
    torch.testing.assert_close(q.cdf(x[..., 1:]), mass, rtol=0, atol=3e-4)  # needles, edges
    assert mass[..., -1].sub(1).abs().max() < (2e-4 if name == "uniform" else 1e-9)


@every_mixture
@every_component
def test_quantiles_invert_the_cdf(component: str, name: str) -> None:
    q = mixture(name, component)
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


@every_proposal
def test_transport_of_uniforms_is_an_exact_sampler(name: str) -> None:
    q = proposal(name)
    draws = q.transport(torch.rand(1, 2, DRAWS, dtype=torch.float64))
    assert all(uniformity(u) > FALSE_ALARM for u in q.cdf(draws)[0])


@every_proposal
def test_position_is_uniform_and_transport_returns_the_point(name: str) -> None:
    q = proposal(name)
    if isinstance(q, Mixture):
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


@every_component
def test_quantiles_where_newton_swings_between_two_modes(component: str) -> None:
    """Found in a trained model: steps from one mode to the other and back, inside the bracket."""
    own = COMPONENTS[component]
    weights = torch.tensor([0.5152, 0.3, 0.1848], dtype=torch.float64)
    locs = torch.tensor([-1.0, 0.232, 1.0], dtype=torch.float64)
    scales = torch.tensor([0.3, 0.1203, 0.3], dtype=torch.float64)
    mixture = Mixture(weights.log()[None], locs[None], scales[None], own)
    u = torch.linspace(0.0005, 0.9995, 20_000, dtype=torch.float64)[None]
    torch.testing.assert_close(mixture.cdf(mixture.icdf(u)), u, rtol=0, atol=1e-12)
    many = torch.Generator().manual_seed(0)
    locs = torch.randn(300, 20, generator=many, dtype=torch.float64)
    scales = 0.03 + 0.3 * torch.rand(300, 20, generator=many, dtype=torch.float64) ** 2
    mixture = Mixture(torch.zeros_like(locs), locs, scales, own)
    u = torch.rand(300, 500, generator=many, dtype=torch.float64)
    torch.testing.assert_close(mixture.cdf(mixture.icdf(u)), u, rtol=0, atol=1e-12)


@pytest.mark.parametrize("degrees", [1.0, 1.3, 2.0, 3.0, 7.5, 20.0, 100.0])
def test_student_tails_have_all_their_digits(degrees: float) -> None:
    """The incomplete beta function by its series, which converges where a tail is far out."""
    component, a = StudentT(degrees), 0.5 * degrees
    z = math.sqrt(degrees) * torch.logspace(0.1, 25, 60, dtype=torch.float64)
    x = degrees / (degrees + z.square())
    term = torch.ones_like(x)
    total = term / a
    for n in range(1, 2000):
        term = term * x * (n - 0.5) / n
        total = total + term / (a + n)
    log_tail = a * x.log() + total.log() - component.log_beta - math.log(2)
    torch.testing.assert_close(component.log_cdf(-z), log_tail, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(component.cdf(-z), log_tail.exp(), rtol=1e-11, atol=0)
    held = component.cdf(-z) > 1e-300
    back = component.quantile(component.cdf(-z[held]))
    torch.testing.assert_close(back, -z[held], rtol=1e-12, atol=0)


def test_cauchys_are_those_in_closed_form() -> None:
    component = StudentT(1.0)
    z = torch.cat((-torch.logspace(-3, 12, 50), torch.logspace(-3, 12, 50))).double()
    torch.testing.assert_close(component.cdf(-z.abs()), (1 / z.abs()).atan() / math.pi)
    u = torch.tensor([1e-9, 0.01, 0.25, 0.5, 0.9], dtype=torch.float64)
    expected = torch.tan(math.pi * (u - 0.5))
    torch.testing.assert_close(component.quantile(u), expected, rtol=1e-7, atol=1e-12)


def test_infinity_has_all_the_mass_on_one_side() -> None:
    ends = torch.tensor([-math.inf, math.inf], dtype=torch.float64)
    for component in COMPONENTS.values():
        torch.testing.assert_close(component.cdf(ends), torch.tensor([0.0, 1.0]).double())
