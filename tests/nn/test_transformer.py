from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aem import AEM, AemError, ModelConfig, TrainConfig
from aem.model.files import load_model, save_model
from aem.nn.features import FourierFeatures
from aem.nn.incremental import incremental
from aem.nn.transformer import CausalTransformer
from aem.training import fit

SMALL = ModelConfig(
    network="transformer", hidden=16, blocks=2, gamma=4, energy_hidden=16, energy_blocks=1,
    components=3, frequencies=2,
)  # fmt: skip


def network(
    features: int, *, hidden: int = 16, blocks: int = 2, context: int = 0, sums: bool = False
) -> nn.Module:
    return CausalTransformer(
        FourierFeatures(torch.rand(features, 2) * 5),
        outputs=4,
        hidden=hidden,
        blocks=blocks,
        dropout=0.3,
        context_features=context,
        sums=torch.randn(features, features).tril() if sums else None,
    )


@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("context", [0, 3])
@pytest.mark.parametrize("sums", [False, True])
def test_outputs_depend_on_the_columns_before_and_on_all_of_them(
    randomise: Callable[[nn.Module], None], features: int, context: int, sums: bool
) -> None:
    net = network(features, context=context, sums=sums)
    randomise(net)
    net = net.double().eval()
    c = torch.randn(1, context, dtype=torch.float64) if context else None
    x = torch.randn(1, features, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(lambda v: net(v, c)[0].abs().sum(-1), x)[:, 0]
    assert torch.equal(slopes != 0, torch.ones(features, features, dtype=torch.bool).tril(-1))
    if c is not None:
        by_context = torch.autograd.functional.jacobian(lambda v: net(x, v)[0].sum(-1), c)
        assert bool((by_context != 0).all())


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("context", [0, 3])
@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize(("features", "hidden"), [(1, 1), (2, 16), (5, 33), (7, 64)])
def test_one_feature_at_a_time_equals_the_full_pass(
    randomise: Callable[[nn.Module], None],
    features: int,
    hidden: int,
    blocks: int,
    context: int,
    sums: bool,
) -> None:
    net = network(features, hidden=hidden, blocks=blocks, context=context, sums=sums)
    randomise(net)
    net = net.double().eval()
    assert isinstance(net, CausalTransformer)
    x = torch.randn(6, features, dtype=torch.float64)
    x[0] = 1e200  # beyond the reach of the networks, in either way of computing
    c = torch.randn(6, context, dtype=torch.float64) if context else None
    with torch.no_grad():
        full = net(x, c)
        steps = incremental(net, 6, c)
        for d in range(features):
            torch.testing.assert_close(steps.outputs(), full[:, d], rtol=1e-10, atol=1e-10)
            steps.push(x[:, d])


def test_rows_do_not_see_each_other(randomise: Callable[[nn.Module], None]) -> None:
    net = network(4)
    randomise(net)
    net = net.double().eval()
    x = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(net(x)[2:3], net(x[2:3]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "needs a context"), (torch.zeros(5, 2), "has shape")],
    ids=["none", "another width"],
)
def test_a_context_that_does_not_fit(given: Tensor | None, said: str) -> None:
    with pytest.raises(AemError, match=said):
        network(4, context=3)(torch.zeros(5, 4), given)
    with pytest.raises(AemError, match="without a context"):
        network(4)(torch.zeros(5, 4), torch.zeros(5, 3))


def test_a_width_that_heads_cannot_share() -> None:
    with pytest.raises(AemError, match="multiple of 32"):
        AEM(ModelConfig(network="transformer", features=3, hidden=100))


@pytest.mark.parametrize("whiten", [False, True])
def test_a_model_with_a_transformer_is_a_model(
    randomise: Callable[[nn.Module], None], whiten: bool, tmp_path: Path
) -> None:
    """Its density has mass one, quantiles invert, a file returns it, and samples are its own."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.5]])
    aem = AEM.for_data(ModelConfig(**{**SMALL.__dict__, "whiten": whiten}), x)
    randomise(aem)
    aem = aem.double().eval()
    axis = torch.linspace(-20, 20, 801, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)
    mass = aem().log_prob(grid.reshape(-1, 2)).exp().sum() * (axis[1] - axis[0]) ** 2
    assert float(mass) == pytest.approx(1, abs=2e-3)
    rows = torch.from_numpy(x[:20])
    torch.testing.assert_close(aem().icdf(aem().cdf(rows)), rows, rtol=1e-5, atol=1e-5)
    save_model(aem, tmp_path / "model.aem")
    again = load_model(tmp_path / "model.aem")
    assert torch.equal(again().log_prob(rows), aem().log_prob(rows))
    torch.manual_seed(0)
    pit = aem().cdf(aem().sample((4000,)))
    # Uniform on the unit square: means within four standard errors, no correlation.
    assert bool(((pit.mean(0) - 0.5).abs() < 4 / np.sqrt(12 * 4000)).all())
    assert abs(float(torch.corrcoef(pit.T)[0, 1])) < 4 / np.sqrt(4000)


def test_it_learns_what_columns_have_in_common() -> None:
    """x_d = x_{d−1} ± 0.1: near the truth after a short training."""
    rng = np.random.default_rng(0)
    steps = rng.choice([-1.0, 1.0], size=(6000, 6)) + 0.1 * rng.normal(size=(6000, 6))
    x = steps.cumsum(1)
    entropy = np.log(2) + 0.5 * np.log(2 * np.pi * np.e) + np.log(0.1)
    torch.manual_seed(0)
    config = ModelConfig(**{**SMALL.__dict__, "hidden": 32, "whiten": True})
    model = AEM.for_data(config, x[:5000])
    settings = TrainConfig(
        steps=300,
        warmup=300,
        batch_size=256,
        learning_rate=5e-3,
        averaging=0.98,
        validate_every=300,
    )
    score = fit(model, x[:5000], x[5000:], settings, quiet=True).best_score
    assert score > -6 * entropy - 1.0


def test_silenced_outputs_are_constants(randomise: Callable[[nn.Module], None]) -> None:
    net = network(3)
    randomise(net)
    assert isinstance(net, CausalTransformer)
    with torch.no_grad():
        net.silence(2)
        found = net(torch.randn(8, 3))
    assert torch.equal(found[..., :2], net.biases()[:, :2].expand(8, -1, -1))
    assert bool((found[..., 2:].std(0) > 0)[1:].all())


def test_values_and_parameters_keep_their_digits_in_mixed_precision(
    randomise: Callable[[nn.Module], None],
) -> None:
    """Without blocks between them, reading and emitting do not notice bfloat16."""
    net = network(3, blocks=0)
    randomise(net)
    x = torch.randn(8, 3)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        mixed = net(x)
    assert mixed.dtype == torch.float32
    with torch.no_grad():
        torch.testing.assert_close(mixed, net(x), rtol=1e-6, atol=1e-6)


def test_tokens_of_whitened_columns_read_the_columns_themselves() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4)).cumsum(1) * [1.0, 10.0, 0.1, 5.0] + 3
    aem = AEM.for_data(ModelConfig(**{**SMALL.__dict__, "whiten": True}), x)
    assert isinstance(aem.arnn, CausalTransformer) and aem.arnn.sums is not None
    read = aem.standardise(torch.from_numpy(x)) @ aem.arnn.sums.T
    standardised = torch.from_numpy((x - x.mean(0)) / x.std(0)).float()
    torch.testing.assert_close(read, standardised, rtol=0, atol=5e-3)
