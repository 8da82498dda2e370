import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from aem import AemError
from aem.conditionals import normalizer as normalizers
from aem.conditionals.batch import Conditionals, EnergyForm
from aem.conditionals.normalizer import SINGLE_SUFFICES, Normalizer, Quadrature, normalizer
from aem.conditionals.proposals.gaussian import GaussianMixture
from tests.support.rough import flat_conditionals, given, rough_model, uniform


def solve(conditionals: Conditionals, tolerance: float = 1e-4, **settings: int) -> Normalizer:
    return normalizer(conditionals, Quadrature(**settings), tolerance=tolerance)


@torch.no_grad()
def scipy_log_z(conditionals: Conditionals, index: int) -> float:
    """log ∫ p̃ dx by SciPy, panel by panel in x."""
    one = conditionals.select(torch.tensor([index]))

    def density(x: float) -> float:
        return float(one.log_unnormalized(torch.tensor([[x]], dtype=torch.float64)).exp())

    ends = one.proposal.icdf(torch.tensor([[0, 1e-13, 1 - 1e-13, 1]], dtype=torch.float64))[0]
    bounded = bool(torch.isfinite(one.proposal.log_prob(ends[None, :1])).all()) and ends[0] > -4
    edges = np.linspace(float(ends[0 if bounded else 1]), float(ends[-1 if bounded else 2]), 7)
    total = sum(
        quad(density, a, b, limit=12, epsabs=1e-6, epsrel=1e-5)[0]
        for a, b in itertools.pairwise(edges)
    )
    if one.form == "literal" and not bounded:
        total += quad(density, -np.inf, edges[0])[0] + quad(density, edges[-1], np.inf)[0]
    return math.log(total)


@pytest.mark.parametrize("proposal", ["mixture", "uniform"])
@pytest.mark.parametrize("form", ["relative", "literal"])
def test_agrees_with_scipy(form: EnergyForm, proposal: str) -> None:
    conditionals = flat_conditionals(rough_model(form, proposal, size=1.0, top=10.0), 1)
    computed = solve(conditionals)
    for i in [1]:
        miss = abs(float(computed.log_z[i]) - scipy_log_z(conditionals, i))
        assert miss <= float(computed.error[i]) + 1e-5
        assert float(computed.error[i]) <= 1.001e-4


def test_errors_cover_and_are_small_on_many_rough_conditionals() -> None:
    """Five random models, 100 conditionals: errors hold, and half of the true ones are below 2e-5."""
    misses, stated = [], []
    for seed in range(5):
        conditionals = flat_conditionals(rough_model(size=2.0, seed=seed, top=40.0), 10)
        computed, reference = solve(conditionals), solve(conditionals, 1e-6)
        misses.append((computed.log_z - reference.log_z).abs())
        stated.append(computed.error)
    miss, error = torch.cat(misses), torch.cat(stated)
    assert float((miss <= error).double().mean()) >= 0.999
    assert float(miss.median()) <= 2e-5


def test_where_energies_are_in_float32_a_twentieth_of_the_tolerance_is_lost_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = []
    for seed in range(5):
        conditionals = flat_conditionals(rough_model(size=2.0, seed=seed, top=40.0), 10)
        single = solve(conditionals, SINGLE_SUFFICES)
        with monkeypatch.context() as patch:
            patch.setattr(normalizers, "SINGLE_SUFFICES", math.inf)
            double = solve(conditionals, SINGLE_SUFFICES)
        assert not torch.equal(single.log_z, double.log_z)
        lost.append((single.log_z - double.log_z).abs())
    assert float(torch.cat(lost).max()) <= 0.05 * SINGLE_SUFFICES


@torch.no_grad()
def test_agrees_with_the_trapezoid_rule_to_seven_figures() -> None:
    conditionals = flat_conditionals(rough_model(size=1.0), 3)
    computed = solve(conditionals, 1e-8)
    x = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    for i in range(len(computed.log_z)):
        one = conditionals.select(torch.tensor([i]))
        z = torch.trapezoid(one.log_unnormalized(x[None])[0].exp(), x)
        assert float(computed.log_z[i].exp()) == pytest.approx(float(z), rel=1e-7)


@pytest.mark.parametrize("slope", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("level", [-3.0, 0.0, 20.0])
def test_literal_tails_in_closed_form(slope: float, level: float) -> None:
    """∫ dx / (1 + exp(k|x| − c)) = 2 log(1 + e^c) / k, wherever the proposal lies."""
    truth = math.log(2 * math.log1p(math.exp(level)) / slope)
    one = torch.ones(3, 1, dtype=torch.float64)
    locs = torch.tensor([[0.0], [5.0], [-40.0]], dtype=torch.float64)
    proposal = GaussianMixture(0 * one, locs, one)
    conditionals = given(lambda x: slope * x.abs() - level, proposal=proposal, count=3)
    computed = solve(conditionals, 1e-6)
    assert bool(computed.converged.all())
    assert bool(((computed.log_z - truth).abs() <= computed.error).all())


def test_mass_outside_the_reach_is_counted() -> None:
    """The share of a Laplace density beyond ±4.75 standard deviations of the proposal."""
    edge = 4.753424308822899
    shares = solve(given(lambda x: x.abs() + 40.0), 1e-8).outside
    assert float(shares[0]) == pytest.approx(math.exp(-edge), rel=1e-6)
    assert float(solve(given(lambda x: x.square() / 2 + 40)).outside[0]) < 1e-5


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: 0 * x,
        lambda x: 0 * x + 200,
        lambda x: x,
        lambda x: -x,
        lambda x: -x.abs(),
        lambda x: x.clamp(max=3) + x.clamp(max=0).abs(),
        lambda x: x.abs().clamp(max=50),
        lambda x: 300 * torch.sin(5 * x),
        lambda x: torch.tanh(x) * 1e3,
    ],
)
def test_divergence_is_found(formula: Callable[[Tensor], Tensor]) -> None:
    conditionals = given(formula)
    computed = solve(conditionals)
    assert computed.log_z.tolist() == [math.inf]
    assert not bool(computed.converged.any())


@pytest.mark.parametrize("formula", [lambda x: x, lambda x: -x, lambda x: 0 * x, torch.square])
def test_divergence_of_an_energy_without_a_bound_is_found(
    formula: Callable[[Tensor], Tensor],
) -> None:
    computed = solve(replace(given(formula), bound=None))
    assert computed.log_z.tolist() == [math.inf]


@pytest.mark.parametrize("top", [-3000.0, -5.0, 0.0, 5.0, 3000.0])
def test_energies_without_a_bound_may_be_of_any_size(top: float) -> None:
    """p̃ = exp(top − 2 |x|), a Laplace density times a number that no exponential can hold."""
    computed = solve(replace(given(lambda x: top - 2 * x.abs()), bound=None), 1e-6)
    assert float(computed.log_z[0]) == pytest.approx(top, abs=1e-5)
    assert bool(computed.converged.all())


@pytest.mark.parametrize("seed", range(3))
def test_random_literal_networks_are_judged_by_their_slope(seed: int) -> None:
    """Divergent exactly where the exact slope of the network, far out, is not positive."""
    model = rough_model("literal", seed=seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        model.energy.final.weight.normal_(0, 1)
    conditionals = flat_conditionals(model, 20)
    far = torch.tensor([-1e12, 1e12], dtype=torch.float64).expand(40, 2).clone().requires_grad_()
    f = conditionals.negative_energy(far)
    decays = (f < -1e3).all(-1)
    assert torch.equal(solve(conditionals).log_z == math.inf, ~decays)


def test_a_uniform_proposal_has_no_tails() -> None:
    computed = solve(given(lambda x: 0 * x, proposal=uniform(-1, 3)), 1e-8)
    assert float(computed.log_z[0]) == pytest.approx(math.log(4 / 2), abs=1e-9)
    assert float(computed.outside[0]) == 0


def test_energies_large_everywhere_do_not_underflow() -> None:
    computed = solve(given(lambda x: 2000 + x.abs()), 1e-6)
    assert float(computed.log_z[0]) == pytest.approx(-2000 + math.log(2), abs=1e-5)


@pytest.mark.parametrize("size", [1.0, 1e2, 1e4])
def test_relative_normalisers_exist_whatever_the_weights(size: float) -> None:
    for seed in range(3):
        conditionals = flat_conditionals(rough_model(size=size, seed=seed), 5)
        computed = solve(conditionals, 1e-2, max_nodes=2000)
        assert bool(torch.isfinite(computed.log_z).all())
        assert bool((computed.log_z <= computed.error + 1e-12).all())
        assert bool((computed.log_z >= -32 - computed.error - 1e-6).all())  # in single precision


@pytest.mark.parametrize(
    "formula", [lambda x: 1e6 * x, lambda x: -1e6 * x, lambda x: -1e9 * x.abs()]
)
def test_slopes_of_either_sign(formula: Callable[[Tensor], Tensor]) -> None:
    computed = solve(given(formula, "relative"))
    assert bool(torch.isfinite(computed.log_z).all()) and float(computed.error.max()) < 2e-4


def test_a_wave_in_the_far_tail_is_not_missed() -> None:
    """A bump where the proposal has 1e-3 of its mass, spread over three standard deviations."""

    def bump(x: Tensor) -> Tensor:
        return 20 - 40 * torch.exp(-0.5 * ((x + 3.6) / 0.05).square()) - 19 * (x > -3).to(x)

    computed, reference = solve(given(bump, "relative")), solve(given(bump, "relative"), 1e-9)
    assert float((computed.log_z - reference.log_z).abs()) <= float(computed.error)


def test_settings_are_checked() -> None:
    for wrong in ({"tolerance": 0.0}, {"tolerance": math.nan}, {"max_nodes": 0}, {"memory": -1}):
        with pytest.raises(AemError):
            Quadrature(**wrong)


def trapezoid(conditionals: Conditionals, low: float, high: float) -> Tensor:
    x = torch.linspace(low, high, 2_000_001, dtype=torch.float64)
    with torch.no_grad():
        return torch.stack(
            [torch.trapezoid(row.exp(), x) for row in conditionals.log_unnormalized(x[None])]
        ).log()


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("weight", [1e-4, 1e-6])
def test_an_energy_that_leaves_only_a_light_component(weight: float, tolerance: float) -> None:
    """The mass of its panels is a difference of CDFs near one half."""
    weights, locs = torch.tensor([[0.5, weight, 0.5]]).double(), torch.tensor([[-6.0, 0.0, 6.0]])
    proposal = GaussianMixture(weights.log(), locs.double(), torch.full((1, 3), 0.5).double())
    conditionals = given(lambda x: 30 * (x.abs() - 2).clamp(-0.5, 1), "relative", proposal)
    computed = solve(conditionals, tolerance)
    miss = (computed.log_z - trapezoid(conditionals, -12, 12)).abs()
    assert float(miss) <= float(computed.error) + 1e-6


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_a_narrow_window_of_an_energy_is_found_wherever_it_lies(tolerance: float) -> None:
    for place in np.linspace(-1.5, 1.5, 13) + 0.0137:

        def window(x: Tensor, c: float = place) -> Tensor:
            return ((x - c).abs() - 0.05).div(0.025).clamp(-1, 1) * 60

        conditionals = given(window, "relative")
        computed = solve(conditionals, tolerance)
        miss = (computed.log_z - trapezoid(conditionals, -2, 2)).abs()
        assert float(miss) <= 2 * float(computed.error) + 1e-6
