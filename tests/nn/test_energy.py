from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aem.config import ActivationName
from aem.errors import AemError
from aem.nn import energy, kernels
from aem.nn.activations import ACTIVATIONS
from aem.nn.blocks import PlainBlock, ResidualBlock
from aem.nn.energy import EnergyNetwork

WRITTEN_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.clamp_min(0),
    "tanh": torch.tanh,
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "softplus": lambda x: (1 + x.exp()).log(),
    "leaky_relu": lambda x: torch.where(x > 0, x, 0.01 * x),
    "elu": lambda x: torch.where(x > 0, x, x.exp() - 1),
}


@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize("activation", sorted(WRITTEN_OUT))
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("learning", [True, False])
def test_split_first_layer_is_one_layer_on_value_and_context(
    randomise: Callable[[nn.Module], None],
    blocks: int,
    activation: str,
    residual: bool,
    learning: bool,
) -> None:
    """Whatever a kernel does with it: an activation no kernel knows must not become another one."""
    inputs, context, hidden, nodes = 5, 3, 16, 6
    net = EnergyNetwork(
        inputs, context, hidden=hidden, blocks=blocks, activation=activation, residual=residual
    )
    randomise(net)
    net = net.double().eval()
    x = torch.randn(4, 2, nodes, inputs, dtype=torch.float64)
    gamma = torch.randn(4, 2, context, dtype=torch.float64)

    a = WRITTEN_OUT[activation]
    joint = torch.cat((net.from_value.weight, net.from_context.weight), 1)
    both = torch.cat((x, gamma[..., None, :].expand(4, 2, nodes, context)), -1)
    h = F.linear(both, joint, net.from_context.bias)
    for block in net.blocks:
        if residual:
            assert isinstance(block, ResidualBlock)
            h = h + block.second(a(block.first(a(h))))
        else:
            assert isinstance(block, PlainBlock)
            h = block.layer(a(h))
    expected = net.final(a(h))[..., 0]

    with torch.set_grad_enabled(learning):
        found = net(x, net.project(gamma))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if learning:
        weights = list(net.parameters())
        slope = torch.randn_like(expected)
        ours, theirs = (torch.autograd.grad(f, weights, slope) for f in (found, expected))
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_settings_and_registry_name_the_same_activations() -> None:
    assert set(get_args(ActivationName)) == set(ACTIVATIONS) == set(WRITTEN_OUT)


@pytest.mark.parametrize("activation", sorted(WRITTEN_OUT))
def test_kernels_refuse_an_activation_they_do_not_know(
    monkeypatch: pytest.MonkeyPatch, activation: str
) -> None:
    """As on a GPU: where a kernel would take everything else, it takes ReLU and tanh alone."""
    monkeypatch.setattr(kernels, "in_mixed_precision", lambda x: True)
    x = torch.zeros(4, 8)
    known = activation in ("relu", "tanh")
    assert kernels.fuses_energy(x, 128, 4, activation) == known
    assert kernels.fuses_resmade(x, 256, 4, activation) == known
    if known:
        assert kernels.is_tanh(activation) == (activation == "tanh")
    else:
        with pytest.raises(ValueError, match=f"no kernel knows the activation '{activation}'"):
            kernels.is_tanh(activation)


@pytest.mark.parametrize("residual", [True, False])
def test_plain_layers_do_not_ask_for_a_kernel(
    monkeypatch: pytest.MonkeyPatch, residual: bool
) -> None:
    asked = []

    def ask(x: Tensor, hidden: int, blocks: int, activation: str) -> bool:
        asked.append((hidden, blocks, activation))
        return False

    monkeypatch.setattr(energy, "fuses_energy", ask)
    monkeypatch.setattr(energy, "fuses_inference", ask)
    net = EnergyNetwork(1, 1, hidden=32, blocks=2, activation="elu", residual=residual)
    net.at(torch.zeros(3, 2), torch.zeros(3, 0), torch.zeros(3, 32))
    assert asked == ([(32, 2, "elu")] * 2 if residual else [])


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
    with pytest.raises(AemError, match="'gelu'; known: relu, tanh, sigmoid, softplus"):
        EnergyNetwork(1, 1, hidden=2, blocks=0, activation="gelu")
