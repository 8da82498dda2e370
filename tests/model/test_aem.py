import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.distributions import Normal

from aem import AEM, AemError, ModelConfig
from aem.conditionals.batch import EnergyForm
from aem.conditionals.estimates import Estimator, log_prob_estimate
from aem.conditionals.normalizer import Quadrature
from aem.model.transforms.affine import Affine
from aem.nn.resmade import ResMADE

SMALL = ModelConfig(
    hidden=16, blocks=1, gamma=4, energy_hidden=16, energy_blocks=1, components=3, frequencies=2
)


def small(**changes: object) -> ModelConfig:
    return ModelConfig(**{**SMALL.__dict__, **changes})


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def table(n: int, features: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.random.default_rng(0).normal(size=(n, features))


@pytest.fixture
def conditional(randomise: Callable[[nn.Module], None]) -> AEM:
    """A model of three features given two, with random weights, in float64."""
    aem = AEM(small(features=3, context_features=2), frequencies=torch.rand(3, 2) * 3)
    randomise(aem)
    return aem.double().eval()


def test_density_is_in_the_units_of_the_data(conditional: AEM) -> None:
    """y = a + s x has log p(y) = log p(x) − Σ log s, by every way of scoring."""
    shift = torch.tensor([5.0, -300.0, 0.0], dtype=torch.float64)
    scale = torch.tensor([1e-3, 40.0, 2.0], dtype=torch.float64)
    moved = copy.deepcopy(conditional)
    moved.standardisation = Affine(shift, scale)
    moved.context_shift.fill_(1.0)
    moved.context_scale.fill_(4.0)
    x, context = rows(20, 3), rows(20, 2)
    y, moved_context = shift + scale * x, 1 + 4 * context
    jacobian = scale.log().sum()

    expected = conditional(context).log_prob(x) - jacobian
    torch.testing.assert_close(moved(moved_context).log_prob(y), expected, rtol=0, atol=1e-9)

    def estimate(aem: AEM, values: Tensor, c: Tensor) -> Tensor:
        torch.manual_seed(3)
        result: Tensor = aem(c).log_prob(values)
        return result

    conditional.train()
    moved.train()
    expected = estimate(conditional, x, context) - jacobian
    torch.testing.assert_close(estimate(moved, y, moved_context), expected, rtol=0, atol=1e-9)


def test_density_integrates_to_one_in_the_units_of_the_data(
    randomise: Callable[[nn.Module], None],
) -> None:
    aem = AEM(
        small(features=1),
        standardisation=Affine(torch.tensor([1000.0]), torch.tensor([50.0])),
        frequencies=torch.tensor([[1.0, 5.0]]),
    )
    randomise(aem)
    x = torch.linspace(1000 - 50 * 15, 1000 + 50 * 15, 601, dtype=torch.float64)
    mass = torch.trapezoid(aem.eval()().log_prob(x[:, None]).exp(), x)
    assert abs(float(mass) - 1) < 2e-3


def test_fitting_the_standardisation_makes_units_irrelevant() -> None:
    x = table(200, 2)
    scores = []
    for shift, scale in ((0.0, 1.0), (48.0, 1024.0)):
        torch.manual_seed(0)
        y = shift + scale * x
        aem = AEM.for_data(SMALL, y).eval()
        z = aem.standardise(torch.from_numpy(y))
        assert z.mean(0).abs().max() < 1e-6 and (z.std(0, correction=0) - 1).abs().max() < 1e-6
        scores.append(aem().log_prob(torch.from_numpy(y)) + 2 * np.log(scale))
    torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=1e-4)


def test_where_a_literal_energy_is_bounded_makes_no_difference(
    randomise: Callable[[nn.Module], None],
) -> None:
    """Of a bound b log p̃ is more by b, and log Z as well."""
    bounds = {"proposal": "uniform", "bounds": ((-4.0, 4.0), (-4.0, 4.0))}
    config = small(features=2, energy="literal", **bounds)
    models = [AEM(config), AEM(replace(config, energy_bound=2.5))]
    randomise(models[0])
    models[1].load_state_dict(models[0].state_dict())
    x = rows(20, 2).clamp(-4, 4)
    plain, moved = (model.double().eval()().scores(x) for model in models)
    torch.testing.assert_close(moved.log_prob, plain.log_prob, rtol=0, atol=1e-9)
    torch.testing.assert_close(moved.log_z, plain.log_z + 2.5, rtol=0, atol=1e-9)


def test_a_literal_energy_may_have_no_bound(randomise: Callable[[nn.Module], None]) -> None:
    """Then p is in proportion to exp f, and some weights are larger than a bound would let them."""
    bounds = {"proposal": "uniform", "bounds": ((-4.0, 4.0),)}
    aem = AEM(small(features=1, energy="literal", energy_bounded=False, **bounds))
    randomise(aem)
    with torch.no_grad():
        aem.energy.final.bias.fill_(20.0)
    aem = aem.double().eval()
    x = torch.linspace(-4, 4, 2001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        f = aem.conditionals(x).network(x[..., None])[:, 0, 0]
    expected = f - torch.trapezoid(f.exp(), x[:, 0]).log()
    assert float(f.max()) > 10
    torch.testing.assert_close(aem().log_prob(x), expected, rtol=0, atol=2e-3)


def test_a_relative_energy_has_the_bound_it_has() -> None:
    for changes in ({"energy_bound": 1.0}, {"energy_bounded": False}):
        with pytest.raises(AemError, match="a relative energy is bounded by its proposal"):
            small(**changes)


@pytest.mark.parametrize(
    "settings",
    [
        {"network": "made", "activation": "elu"},
        {"energy_residual": False, "energy_activation": "leaky_relu"},
        {"network": "made", "energy_residual": False, "energy_activation": "softplus"},
        {"activation": "sigmoid", "energy_activation": "sigmoid"},
    ],
    ids=["made", "plain energy", "both", "sigmoid"],
)
@pytest.mark.parametrize("context", [0, 2])
def test_every_network_makes_a_density_that_is_drawn_from(
    randomise: Callable[[nn.Module], None], settings: dict[str, Any], context: int
) -> None:
    """Mass one in the second conditional; PIT values of draws are those of the density."""
    aem = AEM(small(features=2, context_features=context, hidden=8, frequencies=0, **settings))
    randomise(aem)
    aem = aem.eval()
    given = torch.tensor([0.5, -1.0]) if context else None
    x = torch.stack((torch.full((801,), 0.3), torch.linspace(-12, 12, 801)), -1).double()
    with torch.no_grad():
        log_p = aem(given).scores(x).log_prob
    assert abs(float(torch.trapezoid(log_p[:, 1].exp(), x[:, 1])) - 1) < 5e-3
    torch.manual_seed(1)
    drawn = aem(given).sample((300,))
    u = aem(given).cdf(drawn.double())
    for column in u.unbind(-1):
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-3


def test_columns_may_be_seen_as_they_are() -> None:
    """Then a component is no narrower than `min_scale` in the units of the data, whatever those are."""
    x = 1e-3 * table(200, 2) + 0.5
    aem = AEM.for_data(small(standardise=False, min_scale=0.25), x)
    rows = torch.from_numpy(x)
    assert torch.equal(aem.standardise(rows), rows.float())
    assert not aem.standardisation.shift.any() and bool((aem.standardisation.scale == 1).all())
    with torch.no_grad():
        aem.arnn.biases()[:, 2 * 3 : 3 * 3] = -100.0  # scales as narrow as they can be
    narrowest = 1 / (0.25 * (2 * np.pi) ** 0.5)
    density = aem.eval().conditionals(rows.float()).proposal.log_prob(rows.float()[..., None]).exp()
    assert float(density.detach().max()) <= narrowest * 1.0001
    standardised = AEM.for_data(small(min_scale=0.25), x)
    assert float(standardised.standardisation.scale.max()) * 0.25 < 1e-3


def test_columns_seen_as_they_are_must_be_within_reach() -> None:
    with pytest.raises(AemError, match="beyond ±10,000 need standardised columns"):
        AEM.for_data(small(standardise=False), 1e5 + table(50, 2))
    with pytest.raises(AemError, match="needs 'standardise' to be true"):
        small(standardise=False, whiten=True)


def test_components_start_side_by_side_or_on_top_of_each_other() -> None:
    x = table(200, 2)
    for spread, low, high in ((True, 1.0, 2.0), (False, 0.0, 0.6)):
        aem = AEM.for_data(small(spread_components=spread, components=10), x)
        locs = aem.arnn.biases()[:, 10:20]
        assert bool(((locs.max(-1).values > low) & (locs.max(-1).values < high)).all())


def test_context_changes_every_conditional(conditional: AEM) -> None:
    x = rows(1, 3).expand(5, 3)
    terms = conditional(rows(5, 2)).scores(x).log_prob
    assert (terms.std(0) > 1e-3).all()


def test_each_row_has_its_own_context(conditional: AEM) -> None:
    x, context = rows(6, 3), rows(6, 2)
    together = conditional(context).log_prob(x)
    alone = torch.stack([conditional(context[i]).log_prob(x[i]) for i in range(6)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("training", [False, True])
def test_rows_do_not_leak_into_each_other(conditional: AEM, training: bool) -> None:
    conditional.train(training)
    x, context = rows(6, 3), rows(6, 2)

    def score() -> Tensor:
        torch.manual_seed(3)
        distribution = conditional(context)
        # So small a tolerance takes float64 throughout, where no rounding depends on other rows.
        exact = Quadrature(tolerance=1e-6)
        result: Tensor = (
            distribution.log_prob(x) if training else distribution.scores(x, exact).log_prob.sum(-1)
        )
        return result

    before = score()
    x[2], context[2] = x[2] + 1, context[2] - 1
    after = score()
    others = torch.arange(6) != 2
    assert torch.equal(before[others], after[others])
    assert before[2] != after[2]


@pytest.mark.parametrize("estimator", ["importance", "ranking"])
def test_a_constant_energy_leaves_the_proposal(
    randomise: Callable[[nn.Module], None], estimator: Estimator
) -> None:
    aem = AEM(small(features=3), frequencies=torch.rand(3, 2))
    randomise(aem)
    nn.init.zeros_(aem.energy.final.weight)
    aem = aem.double().eval()
    x = rows(10, 3)
    log_p, log_q, _ = log_prob_estimate(aem.conditionals(x), x, nodes=4, estimator=estimator)
    torch.testing.assert_close(log_p, log_q, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(aem().log_prob(x), log_q.sum(-1), rtol=1e-10, atol=1e-10)


def test_a_known_gaussian_is_scored_as_one() -> None:
    """One component with given φ and a constant energy: N(μ, σ²) in each column, in data units."""
    locs, scales = torch.tensor([0.5, -1.0]).double(), torch.tensor([0.3, 2.0]).double()
    shift, scale = torch.tensor([10.0, 20.0]).double(), torch.tensor([3.0, 0.5]).double()
    config = small(features=2, components=1)
    aem = AEM(config, standardisation=Affine(shift, scale)).double().eval()
    with torch.no_grad():
        aem.arnn.final.weight.zero_()
        aem.energy.final.weight.zero_()
        bias = aem.arnn.final.bias.view(2, -1)
        bias[:, 1] = locs
        bias[:, 2] = torch.expm1(scales - aem.config.min_scale).log()  # softplus backwards
    x = shift + scale * rows(20, 2)
    expected = Normal(shift + scale * locs, scale * scales).log_prob(x)
    torch.testing.assert_close(aem().scores(x).log_prob, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("energy", ["relative", "literal"])
def test_uniform_proposal_is_bounded_in_the_units_of_the_data(energy: EnergyForm) -> None:
    bounds = ((0.0, 10.0), (-4.0, 4.0))
    x = np.random.default_rng(0).random((100, 2)) * [10, 8] - [0, 4]
    aem = AEM.for_data(small(proposal="uniform", bounds=bounds, energy=energy), x).eval()
    scores = aem().scores(torch.from_numpy(x))
    expected = -torch.tensor([10.0, 8.0]).double().log().expand(100, 2)
    torch.testing.assert_close(scores.log_proposal, expected, rtol=1e-5, atol=1e-5)
    outside = aem().log_prob(torch.tensor([[-0.1, 0.0], [5.0, 4.1]]))
    assert (outside == -torch.inf).all()


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda x: np.where(np.arange(20)[:, None] == 7, np.nan, x), "column 'a' .*NaN in row 7"),
        (lambda x: x * [1, 0], "column 'b' .*constant"),
        (lambda x: x[:9], "9 rows"),
        (lambda x: x[:, :1], "2 column names for 1 columns"),
        (lambda x: x[:, 0], "table of rows and columns"),
    ],
)
def test_bad_tables_are_refused(
    break_it: Callable[[object], np.ndarray[tuple[int, int], np.dtype[np.float64]]], message: str
) -> None:
    with pytest.raises(AemError, match=message):
        AEM.for_data(SMALL, break_it(table(20, 2)), columns=("a", "b"))


def test_bad_contexts_are_refused() -> None:
    x = table(20, 2)
    context = table(20, 3)
    context[4, 1] = np.inf
    with pytest.raises(AemError, match="column 'x2' of the context has an infinite value in row 4"):
        AEM.for_data(SMALL, x, context)
    with pytest.raises(AemError, match="context has 12 rows, the data 20"):
        AEM.for_data(SMALL, x, table(12, 3))


@pytest.mark.parametrize(
    ("config", "columns", "message"),
    [
        (small(), (), "at least one feature"),
        (small(features=2), ("a",), "1 column names for 2 features"),
        (
            small(features=2, proposal="uniform", bounds=((0.0, 1.0),)),
            (),
            "'bounds' has 1 pairs for 2 features",
        ),
        (small(features=20), (), "hidden width 16 is below the number of features 20"),
    ],
)
def test_impossible_models_are_refused(
    config: ModelConfig, columns: tuple[str, ...], message: str
) -> None:
    with pytest.raises(AemError, match=message):
        AEM(config, columns=columns)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(4, 2), "2 columns, the model has 3"),
        (torch.tensor([[0.0, 0.0, 0.0], [0.0, float("nan"), 0.0]]), "row 1 of column 'x2'"),
    ],
)
def test_scoring_refuses_what_it_cannot_score(values: Tensor, message: str) -> None:
    with pytest.raises(AemError, match=message):
        AEM(small(features=3)).eval()().log_prob(values)


def test_context_is_needed_exactly_where_the_model_has_one(conditional: AEM) -> None:
    with pytest.raises(AemError, match="needs a context of 2"):
        conditional().log_prob(rows(4, 3))
    for wrong in (1, 3):
        with pytest.raises(AemError, match=f"context has {wrong} columns, .* needs 2"):
            conditional(rows(4, wrong)).log_prob(rows(4, 3))
    with pytest.raises(AemError, match=r"context has 2 columns, .* needs 0"):
        AEM(small(features=3)).eval()(torch.zeros(4, 2)).log_prob(torch.zeros(4, 3))


def test_the_past_may_be_read_without_fourier_features(
    randomise: Callable[[nn.Module], None],
) -> None:
    """Other frequencies change a density through the energy; the proposal then knows none."""
    proposals, scores = [], []
    x = rows(10, 3)
    for scale in (1.0, 2.0):
        torch.manual_seed(0)
        aem = AEM(
            small(features=3, fourier_past=False),
            frequencies=scale * torch.tensor([[1.0, 5.0]] * 3),
        )
        randomise(aem)
        aem = aem.double().eval()
        assert isinstance(aem.arnn, ResMADE) and aem.arnn.initial.in_features == 3
        proposals.append(aem.conditionals(x).proposal.log_prob(x[..., None]))
        scores.append(aem().log_prob(x))
    assert torch.equal(*proposals)
    assert not torch.isclose(*scores).any()


def test_a_model_that_reads_bare_values_samples_what_it_scores(
    randomise: Callable[[nn.Module], None],
) -> None:
    """Column by column, as sampling goes, it has the conditionals of one pass over the row."""
    aem = AEM(small(features=3, fourier_past=False), frequencies=torch.rand(3, 2) * 3)
    randomise(aem)
    aem = aem.double().eval()
    x = rows(10, 3)
    at_once = aem.conditionals(x).proposal.log_prob(x[..., None])[..., 0]
    sequence = aem.sequence(10)
    for d in range(3):
        one = sequence.next().proposal.log_prob(x[:, d, None])[..., 0]
        torch.testing.assert_close(one.reshape(-1), at_once[:, d], rtol=1e-10, atol=1e-10)
        sequence.push(x[:, d])
