"""Gradients of exact log densities and of draws, held against central differences in float64."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from aem import AEM, AemError, ModelConfig, TableModel, TrainConfig, fit
from aem.conditionals.estimates import log_prob_by_importance
from aem.conditionals.normalizer import Quadrature
from aem.errors import AccuracyWarning
from aem.model import sampling
from aem.model.gradients import Draws, LogDensity
from aem.model.transforms.base import Chain, TableTransform
from aem.model.transforms.normal_scores import NormalScores
from aem.model.transforms.offset import Offset
from aem.model.transforms.permutation import Permutation
from tests.support.every import MODELS, context_of, model_of
from tests.support.rough import rough_model, rows_of

FINE = 3e-10  # nats, where a gradient is asked for; differences are taken at a tenth of it
STEP = 1e-5
RELATIVE = 1e-5
Function = Callable[[Tensor], Tensor]


def directional(function: Function, x: Tensor, along: Tensor) -> Tensor:
    """Central differences of a function of rows, along one direction per row."""
    with torch.no_grad():
        return (function(x + STEP * along) - function(x - STEP * along)) / (2 * STEP)


def agree(found: Tensor, expected: Tensor, relative: float = RELATIVE) -> None:
    scale = float(expected.abs().max())
    assert scale > 0
    torch.testing.assert_close(found, expected, rtol=0, atol=relative * scale)


def check_gradient(
    function: Function, x: Tensor, gradient: Tensor, relative: float = RELATIVE
) -> None:
    """Along a random direction for each row, relative to the largest derivative."""
    along = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(7))
    agree((gradient * along).sum(-1), directional(function, x, along), relative)


@pytest.mark.filterwarnings("ignore::aem.AccuracyWarning")
@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_in_rows_and_context(name: str, context: int) -> None:
    model = model_of(name, context=context)
    x, given = rows_of(model, 2), context_of(model, 2)
    leaves = [t.clone().requires_grad_() for t in (x, given) if t is not None]
    log_prob, _ = model(*leaves[1:]).log_prob_and_error(leaves[0], FINE)
    of_rows, *of_context = torch.autograd.grad(log_prob.sum(), leaves)
    check_gradient(lambda y: model(given).log_prob_and_error(y, FINE / 10)[0], x, of_rows)
    if given is not None:
        check_gradient(lambda c: model(c).log_prob_and_error(x, FINE / 10)[0], given, of_context[0])


@pytest.mark.parametrize("features", [1, 4, 10])
@pytest.mark.parametrize("name", ["relative", "literal"])
@pytest.mark.filterwarnings("ignore::aem.AccuracyWarning")
def test_the_gradient_of_few_and_of_many_columns(name: str, features: int) -> None:
    model = model_of(name, features)
    x = rows_of(model, 2)
    leaf = x.clone().requires_grad_()
    log_prob, _ = model().log_prob_and_error(leaf, FINE)
    (gradient,) = torch.autograd.grad(log_prob.sum(), leaf)
    check_gradient(lambda y: model().log_prob_and_error(y, FINE / 10)[0], x, gradient)


def test_a_flat_energy() -> None:
    model = model_of("relative", context=2)
    with torch.no_grad():
        model.energy.final.weight.zero_()
    assert model.flat
    x, given = rows_of(model, 3).requires_grad_(), context_of(model, 3)
    (gradient,) = torch.autograd.grad(model(given).log_prob(x).sum(), x)
    check_gradient(lambda y: model(given).log_prob(y), x.detach(), gradient)


@pytest.mark.parametrize("name", ["relative", "literal", "whitened"])
@pytest.mark.filterwarnings("ignore::aem.AccuracyWarning")
def test_a_wanted_gradient_changes_no_number(name: str) -> None:
    model = model_of(name, 3, context=2)
    x, given = rows_of(model, 70), context_of(model, 70)
    plain, error = model(given).log_prob_and_error(x)
    recorded, same_error = model(given).log_prob_and_error(x.clone().requires_grad_())
    assert not plain.requires_grad and recorded.requires_grad and not same_error.requires_grad
    torch.testing.assert_close(recorded.detach(), plain, rtol=0, atol=0)
    torch.testing.assert_close(same_error, error, rtol=0, atol=0)


def test_the_default_tolerance_gives_some_digits() -> None:
    """In single precision, too: results have the type of the rows."""
    model = model_of("relative", 3, context=2)
    x, given = rows_of(model, 20), context_of(model, 20)
    fine, coarse = x.clone().requires_grad_(), x.float().requires_grad_()
    (exact,) = torch.autograd.grad(model(given).log_prob_and_error(fine, FINE)[0].sum(), fine)
    (found,) = torch.autograd.grad(model(given).log_prob(coarse).sum(), coarse)
    assert found.dtype is torch.float32
    agree(found.double(), exact, 1e-2)


def test_rows_that_share_a_conditional_have_gradients_of_their_own() -> None:
    model = model_of("relative", 3)
    row = rows_of(model, 1)
    alone = row.clone().requires_grad_()
    (expected,) = torch.autograd.grad(model().log_prob(alone).sum(), alone)
    twice = row.repeat(3, 1).requires_grad_()
    weight = torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)
    (found,) = torch.autograd.grad((weight * model().log_prob(twice)).sum(), twice)
    torch.testing.assert_close(found, weight[:, None] * expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["relative", "literal", "student_t"])
@pytest.mark.filterwarnings("ignore::aem.AccuracyWarning")
def test_the_gradient_in_the_parameters(name: str) -> None:
    """It flows where rows or context have one, and is right."""
    model = model_of(name, context=2)
    x, given = rows_of(model, 2), context_of(model, 2)
    assert not model(given).log_prob(x).requires_grad
    model(given).log_prob_and_error(x.clone().requires_grad_(), FINE)[0].sum().backward()
    for own in ("energy.final", "energy.from_context", "arnn.final", "arnn.initial"):
        parameter = model.get_parameter(f"{own}.weight")
        assert parameter.grad is not None
        along = torch.randn_like(parameter) * (parameter != 0)  # not where a mask is
        expected = along_parameter(
            model, f"{own}.weight", along, lambda exact: exact(given).log_prob_and_error(x, FINE)[0]
        )
        agree((parameter.grad * along).sum().double(), expected.sum(), 1e-3)


def along_parameter(
    model: AEM, name: str, along: Tensor, function: Callable[[AEM], Tensor]
) -> Tensor:
    """Central differences of a function of the model, in float64."""
    found = []
    for sign in (1, -1):
        exact = model.in_double()
        with torch.no_grad():
            exact.get_parameter(name).add_(sign * STEP * along.double())
            found.append(function(exact))
    return (found[0] - found[1]) / (2 * STEP)


@pytest.mark.parametrize(
    ("name", "features"), [("relative", 3), ("literal", 2), ("uniform", 3), ("laplace", 2)]
)
@pytest.mark.filterwarnings("ignore::aem.AccuracyWarning")
def test_draws_carry_gradients(name: str, features: int) -> None:
    """As a draw with the same values of the CDFs moves when context or parameters change."""
    model, settings = model_of(name, features, context=2), Quadrature(tolerance=FINE / 100)
    given = context_of(model, 2)
    assert given is not None
    u = torch.rand(2, features, dtype=torch.float64)
    weight = torch.randn(2, features, dtype=torch.float64)

    def inverted(exact: AEM, context: Tensor) -> Tensor:
        z = sampling.invert(exact, u, exact.standardise_context(context), settings)
        return (weight * z).sum(-1)

    exact = model.in_double()
    leaf = given.clone().requires_grad_()
    drawn = sampling.invert(exact, u, exact.standardise_context(given), settings)
    moving = Draws(exact, settings)(drawn, leaf, list(model.parameters()))
    torch.testing.assert_close(moving.detach(), drawn, rtol=0, atol=0)
    (weight * moving).sum().backward()
    assert leaf.grad is not None
    check_gradient(lambda c: inverted(exact, c), given, leaf.grad, 5 * RELATIVE)
    for own in ("energy.final.weight", "arnn.final.weight"):
        parameter = model.get_parameter(own)
        assert parameter.grad is not None
        along = torch.randn_like(parameter) * (parameter != 0)
        expected = along_parameter(model, own, along, lambda some: inverted(some, given))
        agree((parameter.grad * along).sum().double(), expected.sum(), 1e-3)


def test_rsample_draws_what_sample_draws() -> None:
    model = model_of("relative", 2, context=2)
    context = torch.randn(4, 2).requires_grad_()
    torch.manual_seed(1)
    plain = model(context.detach()).sample((3,))
    torch.manual_seed(1)
    moving = model(context).rsample((3,))
    assert model(context).has_rsample and moving.shape == (3, 4, 2)
    torch.testing.assert_close(moving.detach(), plain, rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad(moving.sum(), context)
    assert bool(gradient.isfinite().all()) and float(gradient.abs().min()) > 0


def chain(model: AEM) -> Chain:
    x = 3 * np.random.default_rng(0).standard_t(2, 500)
    scores = NormalScores.of(1, x)
    assert scores is not None
    parts: tuple[TableTransform, ...] = (Offset((5.0, 0.0, -1.0)), scores, Permutation((2, 0, 1)))
    return Chain(parts)


@pytest.mark.filterwarnings("ignore::aem.AccuracyWarning")
def test_through_the_transforms_of_a_table() -> None:
    model = model_of("relative", 3)
    table = TableModel(model, chain(model), columns=("x2", "x3", "x1"))
    x = torch.tensor([[5.5, 2.0, -0.5], [4.0, -40.0, 0.3]], dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    found = table.log_prob(leaf, tolerance=FINE)
    np.testing.assert_allclose(found.detach().numpy(), table.score(x.numpy()).total, atol=1e-3)
    (gradient,) = torch.autograd.grad(found.sum(), leaf)
    check_gradient(lambda y: table.log_prob(y, tolerance=FINE / 10), x, gradient)


@pytest.mark.parametrize("context", [0, 2])
def test_transforms_of_torch_func(context: int) -> None:
    model = model_of("relative", context=context)
    x, given = rows_of(model, 4).reshape(2, 2, 2), context_of(model, 1)
    one = None if given is None else given[0]
    leaf = x.clone().requires_grad_()
    log_prob = model(one).log_prob(leaf)
    (expected,) = torch.autograd.grad(log_prob.sum(), leaf)

    def density(row: Tensor) -> Tensor:
        value: Tensor = model(one).log_prob(row)
        return value

    gradient = torch.func.grad(density)
    for found, wanted in (
        (torch.func.vmap(density)(x), log_prob.detach()),
        (torch.func.vmap(torch.func.vmap(density), in_dims=1, out_dims=1)(x), log_prob.detach()),
        (gradient(x[0, 0]), expected[0, 0]),
        (torch.func.vmap(gradient)(x[0]), expected[0]),
        (torch.func.jacrev(density)(x[1])[0, 0], expected[1, 0]),
        (torch.func.jacrev(torch.func.vmap(density))(x[1])[1, 1], expected[1, 1]),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    if one is not None:
        both = torch.func.vmap(torch.func.grad(lambda c, row: model(c).log_prob(row)), (0, 0))
        assert both(one.expand(2, -1), x[0]).shape == (2, 2)
    with pytest.raises(AemError, match="no forward-mode derivatives"):
        torch.func.jvp(density, (x[0],), (x[0],))
    with pytest.raises(AemError, match=r"under torch\.func"):
        torch.func.grad(lambda c: model(c).rsample().sum())(torch.zeros(2))


def test_second_derivatives_are_refused() -> None:
    model = model_of("relative")
    x = rows_of(model, 2).requires_grad_()
    (gradient,) = torch.autograd.grad(model().log_prob(x).sum(), x, create_graph=True)
    with pytest.raises(AemError, match="differentiated only once"):
        gradient.sum().backward()


def test_a_tolerance_that_cannot_be_met_is_a_warning() -> None:
    model = rough_model(size=4.0)
    x = rows_of(model, 3).requires_grad_()
    with pytest.warns(AccuracyWarning, match="was not met"):
        log_prob, _ = LogDensity(model.in_double, Quadrature(tolerance=1e-9, max_nodes=300))(
            x, None
        )
    (gradient,) = torch.autograd.grad(log_prob.sum(), x)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("name", ["relative", "literal uniform"])
@pytest.mark.filterwarnings("ignore::aem.AccuracyWarning")
def test_training_mode_estimates_the_same_gradients(name: str) -> None:
    """In everything there is; up to noise with many nodes, and up to the bias of log Ẑ with few."""
    model = model_of(name, context=2).double()
    x, given = rows_of(model, 1), context_of(model, 1)
    assert given is not None
    leaves = [t.clone().requires_grad_() for t in (x, given)]
    wanted = [*leaves, model.get_parameter("arnn.final.bias")]
    exact = torch.autograd.grad(model(leaves[1]).log_prob(leaves[0]).sum(), wanted)
    model.train()
    z = model.standardise(leaves[0])
    conditionals = model.conditionals(z, model.standardise_context(leaves[1]))
    many = log_prob_by_importance(conditionals, z, nodes=20_000).sum()
    few = model(leaves[1].expand(2000, -1)).log_prob(leaves[0].expand(2000, -1)).mean()
    for log_prob, off in ((many, 0.02), (few, 0.3)):
        for found, expected in zip(torch.autograd.grad(log_prob, wanted), exact, strict=True):
            agree(found, expected, off)


def hamiltonian(
    model: AEM, x: Tensor, *, steps: int, leaps: int, length: float
) -> tuple[Tensor, float]:
    """Hamiltonian Monte Carlo with the leapfrog method, one chain per row."""

    def at(place: Tensor) -> tuple[Tensor, Tensor]:
        place = place.detach().requires_grad_()
        log_prob = model().log_prob(place)
        return log_prob.detach(), torch.autograd.grad(log_prob.sum(), place)[0]

    level, force = at(x)
    accepted = 0.0
    for _ in range(steps):
        speed = torch.randn_like(x)
        new, energy = x, level - 0.5 * speed.square().sum(-1)
        new_force = force
        for _ in range(leaps):
            speed = speed + 0.5 * length * new_force
            new = new + length * speed
            new_level, new_force = at(new)
            speed = speed + 0.5 * length * new_force
        gain = new_level - 0.5 * speed.square().sum(-1) - energy
        yes = torch.rand_like(gain).log() < gain
        x, force = (torch.where(yes[:, None], a, b) for a, b in ((new, x), (new_force, force)))
        level = torch.where(yes, new_level, level)
        accepted += float(yes.double().mean()) / steps
    return x, accepted


def test_hamiltonian_draws_are_as_good_as_exact_ones() -> None:
    """Chains that begin far too narrow end as draws of a trained model, by the test exact draws pass.

    A test of each column's PIT values fails by chance with probability 1e-3.
    """
    rng = np.random.default_rng(0)
    first = rng.standard_normal(2200)
    rows = np.stack((first, 0.5 * first**2 + 0.5 * rng.standard_normal(2200)), -1)
    config = ModelConfig(
        hidden=16, blocks=1, gamma=8, energy_hidden=16, energy_blocks=1, components=3, frequencies=0
    )
    model = AEM.for_data(config, rows[:2000])
    plan = TrainConfig(steps=300, learning_rate=5e-3, device="cpu")
    fit(model, rows[:2000], rows[2000:], plan, quiet=True)

    def worst(drawn: Tensor) -> float:
        columns = model().cdf(drawn).unbind(-1)
        return min(float(stats.kstest(column.numpy(), "uniform").pvalue) for column in columns)

    begin = 0.2 * torch.randn(150, 2, dtype=torch.float64)
    end, accepted = hamiltonian(model, begin, steps=20, leaps=6, length=0.25)
    assert accepted > 0.6
    assert worst(begin) < 1e-6
    assert worst(model().sample((150,)).double()) > 1e-3
    assert worst(end) > 1e-3
