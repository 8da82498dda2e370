"""A density behaves like the distributions of `torch.distributions`, and works inside them."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Categorical,
    Distribution,
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
    Uniform,
    kl_divergence,
)

from aem import AEM, AemError, ModelConfig, TrainConfig, fit
from aem.model.distribution import AEMDistribution
from aem.model.moments import kl_divergence_and_error
from tests.support.rough import rough_model, rows_of


def smooth(context: int = 0, features: int = 2, **changes: Any) -> AEM:
    return rough_model(context=context, features=features, size=0.5, top=3.0, **changes).double()


def gaussian(mean: float = 0.0) -> AEM:
    """A model that is exactly a standard normal distribution, but for its mean."""
    settings = ModelConfig(
        features=2,
        components=1,
        frequencies=0,
        hidden=8,
        blocks=0,
        energy_hidden=8,
        energy_blocks=0,
    )
    model = AEM(settings).double()
    with torch.no_grad():
        model.arnn.final.weight.zero_()
        bias = model.arnn.biases()
        bias.zero_()
        bias[:, 1] = mean
        bias[:, 2] = math.log(math.expm1(1 - model.config.min_scale))
    model.flatten()
    return model.eval()


def test_draws_take_a_number_or_a_shape() -> None:
    distribution = smooth(context=2)(torch.zeros(3, 2))
    assert distribution.sample(7).shape == (7, 3, 2)
    assert distribution.sample(np.int64(7)).shape == (7, 3, 2)
    assert distribution.sample((np.int64(7),)).shape == (7, 3, 2)
    assert distribution.sample(torch.tensor(7)).shape == (7, 3, 2)
    assert distribution.sample([2, 4]).shape == (2, 4, 3, 2)
    assert distribution.sample((0,)).shape == (0, 3, 2)
    assert distribution.rsample(2).shape == (2, 3, 2)
    for wrong in (-1, (-1,), (2, -3), True):
        with pytest.raises(AemError, match="shape of draws"):
            distribution.sample(wrong)


@pytest.mark.parametrize("method", ["exact", "inverse", "resample", "proposal"])
def test_a_generator_decides_the_draws(method: Any) -> None:
    distribution = smooth()()

    def drawn(seed: int) -> Tensor:
        stream = torch.Generator().manual_seed(seed)
        rows: Tensor = distribution.sample(5, method, generator=stream)
        return rows

    before = torch.get_rng_state()
    first = drawn(1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(drawn(1), first, rtol=0, atol=0)
    assert not torch.equal(drawn(2), first)


def test_whole_numbers_arrays_and_other_types() -> None:
    model = smooth().float()
    distribution = model()
    expected = distribution.log_prob(torch.ones(1, 2))
    for same in (
        torch.ones(1, 2, dtype=torch.long),
        np.ones((1, 2)),
        [[1, 1]],
        np.ones((1, 2), int),
    ):
        torch.testing.assert_close(distribution.log_prob(same).float(), expected)
    half = distribution.log_prob(torch.ones(1, 2, dtype=torch.float16))
    assert half.dtype is torch.float32
    torch.testing.assert_close(half, expected)
    for wrong, message in (
        (torch.ones(1, 2, dtype=torch.bool), "not of type bool"),
        (torch.ones(1, 2, dtype=torch.complex64), "not of type complex64"),
        ([["a", "b"]], "the data must be numbers"),
        (torch.ones(1, 2, device="meta"), "on 'meta' and the model on 'cpu'"),
    ):
        with pytest.raises(AemError, match=message):
            distribution.log_prob(wrong)
    with pytest.raises(AemError, match="the context must be real numbers"):
        smooth(context=2)(torch.ones(2, dtype=torch.bool))


def test_contexts_may_be_arrays() -> None:
    model = smooth(context=2)
    rows = rows_of(model, 2)
    expected = model(torch.ones(2, dtype=torch.float64)).log_prob(rows)
    torch.testing.assert_close(model(np.ones(2)).log_prob(rows), expected)
    torch.testing.assert_close(model([1, 1], validate_args=True).log_prob(rows), expected)


def test_a_distribution_follows_its_model() -> None:
    """Scores and draws are those of the weights the model has when it is asked."""
    model, other = smooth(), smooth(seed=5)
    distribution, rows = model(), rows_of(model, 3)
    before, conditional = distribution.log_prob(rows), distribution.conditionals(rows)[0]
    model.load_state_dict(other.state_dict())
    expected = other().log_prob(rows)
    assert not torch.allclose(before, expected)
    torch.testing.assert_close(distribution.log_prob(rows), expected, rtol=0, atol=0)
    torch.testing.assert_close(distribution.cdf(rows), other().cdf(rows), rtol=0, atol=0)
    torch.manual_seed(0)
    drawn = distribution.sample(4)
    torch.manual_seed(0)
    torch.testing.assert_close(other().sample(4), drawn, rtol=0, atol=0)
    with torch.no_grad():
        next(iter(model.arnn.parameters())).data.add_(0.1)
    assert not torch.equal(distribution.log_prob(rows), expected)
    # A conditional that was asked for is of the weights it was made with.
    model.load_state_dict(other.state_dict())
    known = smooth()().conditionals(rows)[0]
    torch.testing.assert_close(conditional.log_density(0.5), known.log_density(0.5))


@pytest.mark.parametrize("context", [0, 2])
def test_expand(context: int) -> None:
    model = smooth(context)
    one = model(torch.ones(1, 2, dtype=torch.float64)) if context else model()
    wide = one.expand((3, 4))
    assert isinstance(wide, AEMDistribution) and wide.batch_shape == (3, 4)
    assert wide.sample(5).shape == (5, 3, 4, 2)
    row = rows_of(model, 1)
    torch.testing.assert_close(wide.log_prob(row), one.log_prob(row).expand(3, 4))
    assert repr(wide) == "AEMDistribution(batch_shape=(3, 4), event_shape=(2,))"
    with pytest.raises(AemError, match="cannot be expanded"):
        wide.expand((2, 4))


def test_moments_and_entropy_of_a_density_that_is_known() -> None:
    distribution = gaussian(0.5)()
    found = distribution.moments()
    torch.testing.assert_close(found.mean, torch.full((2,), 0.5).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(found.variance, torch.ones(2).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(distribution.stddev, torch.ones(2).double(), rtol=0, atol=1e-6)
    entropy, error = distribution.entropy_and_error()
    assert float(error) < 0.05
    assert abs(float(entropy) - (1 + math.log(2 * math.pi))) < 5 * float(error)
    torch.testing.assert_close(distribution.entropy(), entropy, rtol=0, atol=0)
    with pytest.raises(AemError, match="at least 2 draws"):
        distribution.moments(1)


@pytest.mark.parametrize("context", [0, 2])
def test_moments_are_those_of_draws(context: int) -> None:
    """The error of the first column, without one, is that of quadrature: none."""
    model = smooth(context, features=3)
    distribution = model(torch.ones(2, 2, dtype=torch.float64)) if context else model()
    torch.manual_seed(1)
    drawn = distribution.sample(20_000)
    found = distribution.moments(200)
    assert found.mean.shape == found.variance.shape == drawn.shape[1:]
    off = (drawn.mean(0) - found.mean).abs()
    assert bool((off < 5 * (found.mean_error + drawn.std(0) / 20_000**0.5)).all())
    off = (drawn.var(0) / found.variance - 1).abs()
    assert bool((off < 0.05 + 5 * found.variance_error / found.variance).all())
    assert float(found.mean_error[..., 0].max()) < 1e-9 < float(found.mean_error[..., 1].min())
    torch.testing.assert_close(distribution.moments(200).mean, found.mean, rtol=0, atol=0)


def test_divergences_from_and_to_other_distributions() -> None:
    p, q = gaussian(0.0)(), gaussian(1.0)()
    reference = MultivariateNormal(torch.ones(2).double(), torch.eye(2).double())
    for left, right in ((p, q), (p, reference), (reference, p)):
        found, error = kl_divergence_and_error(left, right)
        assert abs(float(found) - 1.0) < 5 * float(error) < 0.5
        torch.testing.assert_close(kl_divergence(left, right), found, rtol=0, atol=0)
    assert float(kl_divergence(p, gaussian()())) == 0
    with pytest.raises(AemError, match="events of one shape"):
        kl_divergence(p, Normal(0.0, 1.0))


def test_support() -> None:
    assert bool(smooth()().support.check(torch.tensor([1e9, 0.0])))
    box = smooth(proposal="uniform")().support
    assert box.event_dim == 1
    inside = box.check(torch.tensor([[0.0, 0.0], [0.0, 6.0]]).double())
    assert inside.tolist() == [True, False]


def test_inside_other_distributions() -> None:
    model = smooth(context=2)
    context = torch.tensor([[0.0, 0.0], [1.0, -1.0], [0.5, 0.5]], dtype=torch.float64)
    each, rows = model(context), rows_of(model, 3)
    log_prob = each.log_prob(rows)

    joint = Independent(each, 1)
    assert (joint.batch_shape, joint.event_shape) == ((), (3, 2))
    torch.testing.assert_close(joint.log_prob(rows), log_prob.sum())
    assert joint.rsample((4,)).shape == (4, 3, 2)

    scale = torch.tensor([2.0, 0.5], dtype=torch.float64)
    moved = TransformedDistribution(each, [AffineTransform(1.0, scale)])
    torch.testing.assert_close(moved.log_prob(1 + scale * rows), log_prob - scale.log().sum())
    assert moved.has_rsample and moved.rsample((4,)).shape == (4, 3, 2)

    logits = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64)
    mixture = MixtureSameFamily(Categorical(logits=logits), each)
    by_hand = torch.stack([model(c).log_prob(rows) for c in context], -1) + logits.log_softmax(0)
    torch.testing.assert_close(mixture.log_prob(rows), by_hand.logsumexp(-1), rtol=0, atol=1e-5)
    assert mixture.sample((5,)).shape == (5, 2)
    weights = logits.softmax(0)[:, None]
    torch.testing.assert_close(mixture.mean, (weights * each.mean).sum(0))


def test_a_gradient_through_a_transformed_distribution() -> None:
    model = smooth()
    scale = torch.tensor([2.0, 0.5], dtype=torch.float64, requires_grad=True)
    rows = rows_of(model, 3)
    TransformedDistribution(model(), [AffineTransform(0.0, scale)]).log_prob(rows).sum().backward()
    leaf = (rows / scale.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(model().log_prob(leaf).sum(), leaf)
    expected = (slope * -rows / scale.detach() ** 2).sum(0) - len(rows) / scale.detach()
    torch.testing.assert_close(scale.grad, expected)


def test_numbers_instead_of_grids() -> None:
    model = smooth()
    one = model().conditionals(rows_of(model, 1)[0])[1]
    many = model().conditionals(rows_of(model, 3))[1]
    assert one.quantile(0.5).shape == () and many.quantile(0.5).shape == (3,)
    torch.testing.assert_close(one.cdf(one.quantile(0.3)), torch.tensor(0.3).double())
    torch.testing.assert_close(many.quantile([0.1, 0.9]), many.quantile(torch.tensor([0.1, 0.9])))
    torch.testing.assert_close(many.density(1.0), many.density(torch.tensor([1.0]))[:, 0])
    assert many.log_density(torch.tensor(1.0)).shape == (3,)
    with pytest.raises(
        AemError, match=r"a grid of shape \(2, 5\) does not fit rows of shape \(3,\)"
    ):
        many.cdf(torch.zeros(2, 5))


def test_draws_of_a_conditional() -> None:
    """Their PIT values are uniform, as far as a thousand of them show."""
    model = smooth()
    many = model().conditionals(rows_of(model, 3))[1]
    stream = torch.Generator().manual_seed(1)
    drawn = many.sample((500, 2), generator=stream)
    assert drawn.shape == (500, 2, 3) and many.sample().shape == (3,)
    u = many.cdf(drawn.flatten(0, 1).T).flatten()
    assert abs(float(u.mean()) - 0.5) < 0.03 and abs(float(u.var()) - 1 / 12) < 0.01
    again = many.sample((500, 2), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(again, drawn, rtol=0, atol=0)


def test_what_fit_returns_can_be_printed() -> None:
    rows = np.random.default_rng(0).normal(size=(100, 2))
    settings = ModelConfig(hidden=8, blocks=1, energy_hidden=8, energy_blocks=1)
    model = AEM.for_data(settings, rows)
    state = fit(model, rows, rows, TrainConfig(steps=2, device="cpu"), quiet=True)
    assert state.best_weights and len(state.history) == 1
    assert len(repr(state)) < 200 and "best_score" in repr(state)


def test_a_model_without_data_has_frequencies() -> None:
    model = AEM(ModelConfig(features=2, frequencies=4))
    frequencies = model.embedding.frequencies
    assert float(frequencies.min()) > 0 and bool((frequencies.diff() > 0).all())
    assert AEM(ModelConfig(features=2, frequencies=0)).embedding.frequencies.shape == (2, 0)


def test_a_copy_is_a_distribution_of_its_own() -> None:
    model = smooth()
    distribution, rows = model(), rows_of(model, 2)
    expected = distribution.log_prob(rows)
    copied = copy.deepcopy(distribution)
    with torch.no_grad():
        model.arnn.final.bias.add_(1.0)
    torch.testing.assert_close(copied.log_prob(rows), expected, rtol=0, atol=0)
    assert isinstance(copied, Distribution) and Uniform.has_rsample


def test_divergences_are_exact_in_training_mode_too() -> None:
    model = smooth()
    other = Independent(Normal(torch.zeros(2).double(), torch.ones(2).double()), 1)
    pairs = (model(), other), (other, model())
    divergences = [kl_divergence_and_error(p, q, 50)[0] for p, q in pairs]
    model.train()
    assert [kl_divergence_and_error(p, q, 50)[0] for p, q in pairs] == divergences


def test_results_have_the_type_of_the_rows_in_both_modes() -> None:
    model = rough_model(size=0.5).float()
    x = rows_of(model, 3).double()
    assert model().log_prob(x).dtype is torch.float64
    model.train()
    assert model().log_prob(x).dtype is torch.float64
    with pytest.raises(AemError, match=r"call the model's eval\(\) first"):
        torch.func.grad(lambda y: model().log_prob(y[None])[0])(x[0])


def test_moments_of_many_rows_are_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = smooth(context=2)(torch.zeros(3, 2))
    whole = distribution.moments(20)
    monkeypatch.setattr("aem.model.moments.ROWS_AT_A_TIME", 7)
    parts = distribution.moments(20)
    torch.testing.assert_close(parts.mean, whole.mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(parts.variance_error, whole.variance_error, rtol=0, atol=1e-9)
