"""The property MADE and ResMADE stand on: output d sees x_<d and the context, and nothing else."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from aem.errors import AemError
from aem.nn.activations import ACTIVATIONS
from aem.nn.blocks import PlainBlock
from aem.nn.features import FourierFeatures
from aem.nn.made import MADE
from aem.nn.resmade import ResMADE

OUTPUTS = 3
CONTEXT = 2


def network(
    randomise: Callable[[nn.Module], None],
    features: int,
    hidden: int,
    blocks: int,
    *,
    context: int = 0,
    frequencies: int = 0,
    activation: str = "tanh",
    kind: type[MADE] = ResMADE,
) -> MADE:
    """Tanh has a slope everywhere, so that a missing connection cannot hide behind a dead unit."""
    embedding = FourierFeatures(1 + torch.rand(features, frequencies))
    net = kind(
        embedding,
        OUTPUTS,
        hidden=hidden,
        blocks=blocks,
        activation=activation,
        context_features=context,
    )
    randomise(net)
    return net.double().eval()


def input_jacobian(net: MADE, x: Tensor, context: Tensor | None) -> Tensor:
    """d outputs / d x of one row: [D, O, D]."""
    result = jacobian(lambda row: net(row[None], context)[0], x)
    assert isinstance(result, Tensor)
    return result


@pytest.mark.parametrize("kind", [MADE, ResMADE])
@pytest.mark.parametrize("frequencies", [0, 2])
@pytest.mark.parametrize("context", [0, CONTEXT])
@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize(
    ("features", "hidden"), [(1, 1), (2, 2), (3, 7), (6, 6), (6, 40), (12, 13)]
)
def test_outputs_depend_on_all_earlier_features_and_no_other(
    randomise: Callable[[nn.Module], None],
    features: int,
    hidden: int,
    blocks: int,
    context: int,
    frequencies: int,
    kind: type[MADE],
) -> None:
    net = network(
        randomise, features, hidden, blocks, context=context, frequencies=frequencies, kind=kind
    )
    row = torch.randn(1, context, dtype=torch.float64) if context else None
    slopes = input_jacobian(net, torch.randn(features, dtype=torch.float64), row)
    earlier = torch.ones(features, features, dtype=torch.bool).tril(-1)
    assert torch.equal(slopes != 0, earlier[:, None, :].expand_as(slopes))


@pytest.mark.parametrize(("features", "hidden", "blocks"), [(4, 5, 2), (9, 30, 4)])
def test_relu_networks_are_autoregressive_too(
    randomise: Callable[[nn.Module], None], features: int, hidden: int, blocks: int
) -> None:
    net = network(randomise, features, hidden, blocks, activation="relu", frequencies=3)
    slopes = torch.stack(
        [input_jacobian(net, torch.randn(features, dtype=torch.float64), None) for _ in range(20)]
    )
    upper = torch.ones(features, features, dtype=torch.bool).triu()
    assert not slopes.movedim(2, 0)[:, :, upper].any()
    assert slopes.any()


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("kind", [MADE, ResMADE])
def test_every_activation_leaves_the_order_intact(
    randomise: Callable[[nn.Module], None], activation: str, kind: type[MADE]
) -> None:
    net = network(randomise, 5, 30, 2, activation=activation, kind=kind)
    slopes = torch.stack(
        [input_jacobian(net, torch.randn(5, dtype=torch.float64), None) for _ in range(30)]
    )
    earlier = torch.ones(5, 5, dtype=torch.bool).tril(-1)
    assert torch.equal((slopes != 0).any(0), earlier[:, None, :].expand(5, OUTPUTS, 5))


def test_a_made_is_its_layers_one_after_the_other(
    randomise: Callable[[nn.Module], None],
) -> None:
    net = network(randomise, 4, 12, 2, context=CONTEXT, kind=MADE)
    x, c = torch.randn(7, 4).double(), torch.randn(7, CONTEXT).double()
    h = net.initial(x) + net.context_layers[0](c)
    for block, context_layer in zip(net.blocks, list(net.context_layers)[1:], strict=True):
        assert isinstance(block, PlainBlock)
        h = block.layer(h.tanh()) + context_layer(c)
    expected = net.final(h.tanh()).view(7, 4, OUTPUTS)
    torch.testing.assert_close(net(x, c), expected, rtol=1e-12, atol=1e-12)


def test_a_number_of_features_stands_for_their_plain_values() -> None:
    for kind in (MADE, ResMADE):
        torch.manual_seed(1)
        short = kind(3, 2, hidden=8, blocks=1)
        torch.manual_seed(1)
        long = kind(FourierFeatures(torch.zeros(3, 0)), 2, hidden=8, blocks=1)
        x = torch.randn(5, 3)
        assert torch.equal(short(x), long(x))


def test_an_affine_flow_of_a_resmade_has_the_jacobian_it_says(
    randomise: Callable[[nn.Module], None],
) -> None:
    """A drop-in for a MADE: u = (x − shift) exp(−log scale) is triangular."""
    net = ResMADE(4, 2, hidden=16, blocks=2, activation="elu")
    randomise(net)
    net = net.double()

    def flow(x: Tensor) -> Tensor:
        shift, log_scale = net(x[None])[0].unbind(-1)
        u: Tensor = (x - shift) * (-log_scale).exp()
        return u

    x = torch.randn(4, dtype=torch.float64)
    slopes = jacobian(flow, x)
    assert isinstance(slopes, Tensor)
    assert not slopes.triu(1).any()
    expected = -net(x[None])[0, :, 1].sum()
    torch.testing.assert_close(slopes.det().abs().log(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("blocks", [0, 2])
@pytest.mark.parametrize(("features", "hidden"), [(1, 1), (2, 2), (5, 5), (5, 30)])
def test_context_reaches_every_output(
    randomise: Callable[[nn.Module], None], features: int, hidden: int, blocks: int
) -> None:
    net = network(randomise, features, hidden, blocks, context=CONTEXT)
    x = torch.randn(1, features, dtype=torch.float64)
    slopes = jacobian(lambda c: net(x, c[None])[0], torch.randn(CONTEXT, dtype=torch.float64))
    assert isinstance(slopes, Tensor)
    assert (slopes != 0).all()


def test_context_enters_every_block(randomise: Callable[[nn.Module], None]) -> None:
    net = network(randomise, 3, 12, 3, context=CONTEXT)
    x, context = torch.randn(4, 3).double(), torch.randn(4, CONTEXT).double()
    before = net(x, context)
    assert len(net.context_layers) == 4
    for layer in net.context_layers:
        assert isinstance(layer, nn.Linear)
        kept = layer.weight.detach().clone()
        nn.init.zeros_(layer.weight)
        assert (net(x, context) - before).abs().max() > 1e-3
        layer.weight.data.copy_(kept)


def test_rows_do_not_see_each_other(randomise: Callable[[nn.Module], None]) -> None:
    net = network(randomise, 4, 16, 2, context=CONTEXT, frequencies=2)
    x, context = torch.randn(6, 4).double(), torch.randn(6, CONTEXT).double()
    before = net(x, context)
    x[3], context[3] = x[3] + 1, context[3] - 1
    after = net(x, context)
    others = torch.arange(6) != 3
    assert torch.equal(before[others], after[others])
    assert (before[3] != after[3]).all()


def test_dropout_acts_in_training_alone(randomise: Callable[[nn.Module], None]) -> None:
    net = ResMADE(FourierFeatures(torch.zeros(2, 0)), 1, hidden=64, blocks=1, dropout=0.5)
    randomise(net)
    x = torch.randn(1, 2).expand(4000, 2)
    noisy = net.train()(x)[:, 1, 0]
    calm = net.eval()(x)[:, 1, 0]
    assert noisy.std() > 0.05 and calm.std() < 1e-6


def test_contexts_that_do_not_fit_are_refused() -> None:
    embedding = FourierFeatures(torch.zeros(2, 0))
    plain = ResMADE(embedding, 1, hidden=4, blocks=1)
    conditional = ResMADE(embedding, 1, hidden=4, blocks=1, context_features=3)
    x = torch.zeros(5, 2)
    with pytest.raises(AemError, match="built without a context"):
        plain(x, torch.zeros(5, 3))
    with pytest.raises(AemError, match="needs a context of 3"):
        conditional(x)
    with pytest.raises(AemError, match=r"shape \(5, 2\).*needs \(5, 3\)"):
        conditional(x, torch.zeros(5, 2))
