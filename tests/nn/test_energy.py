from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from aem.errors import AemError
from aem.nn.blocks import ResidualBlock
from aem.nn.energy import EnergyNetwork


@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_split_first_layer_is_one_layer_on_value_and_context(
    randomise: Callable[[nn.Module], None], blocks: int, activation: str
) -> None:
    inputs, context, hidden, nodes = 5, 3, 16, 6
    net = EnergyNetwork(inputs, context, hidden=hidden, blocks=blocks, activation=activation)
    randomise(net)
    net = net.double().eval()
    x = torch.randn(4, 2, nodes, inputs, dtype=torch.float64)
    gamma = torch.randn(4, 2, context, dtype=torch.float64)

    a = F.relu if activation == "relu" else torch.tanh
    joint = torch.cat((net.from_value.weight, net.from_context.weight), 1)
    both = torch.cat((x, gamma[..., None, :].expand(4, 2, nodes, context)), -1)
    h = F.linear(both, joint, net.from_context.bias)
    for block in net.blocks:
        assert isinstance(block, ResidualBlock)
        h = h + block.second(a(block.first(a(h))))
    expected = net.final(a(h))[..., 0]

    torch.testing.assert_close(net(x, net.project(gamma)), expected, rtol=1e-12, atol=1e-12)


def test_first_layer_starts_with_the_fan_in_of_value_and_context() -> None:
    net = EnergyNetwork(1, 99, hidden=2000, blocks=0)
    for weight in (net.from_value.weight, net.from_context.weight):
        assert weight.abs().max().item() == pytest.approx(0.1, rel=0.01)


def test_dropout_acts_in_training_alone(randomise: Callable[[nn.Module], None]) -> None:
    net = EnergyNetwork(1, 1, hidden=32, blocks=2, dropout=0.5)
    randomise(net)
    x, projected = torch.ones(1, 500, 1), net.project(torch.ones(1, 1))
    assert net.train()(x, projected).std() > 0.05
    assert net.eval()(x, projected).std() < 1e-6


def test_unknown_activation_is_named() -> None:
    with pytest.raises(AemError, match="'gelu'; known: relu, tanh"):
        EnergyNetwork(1, 1, hidden=2, blocks=0, activation="gelu")
