"""The fused energy network against PyTorch in float64, forward and gradients."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.support.triton_here import DEVICE, GPU, KIND
from torch import Tensor

from aem.nn.blocks import ResidualBlock
from aem.nn.energy import EnergyNetwork
from aem.nn.features import fourier_features
from aem.nn.kernels import applied
from aem.nn.kernels import energy as kernel
from tests.support.dropout import dropout_mask

# conditionals, nodes, hidden, blocks, frequencies, features, activation, dropout
SHAPES = [
    (5, 7, 32, 2, 0, 1, "relu", 0.0),
    (6, 20, 64, 1, 3, 2, "tanh", 0.0),
    (9, 21, 128, 2, 16, 3, "relu", 0.2),
    (7, 5, 32, 2, 5, 7, "tanh", 0.25),
    (3, 50, 128, 4, 8, 3, "relu", 0.0),
    (4, 9, 32, 3, 1, 4, "tanh", 0.1),
    (4, 6, 256, 1, 2, 2, "relu", 0.5),
    (11, 1, 64, 1, 4, 11, "relu", 0.2),
    (300, 2, 32, 2, 0, 3, "relu", 0.2),
]
LARGE = [
    (512 * 6, 20, 128, 4, 16, 6, "relu", 0.2),
    (131 * 63, 20, 128, 4, 8, 63, "relu", 0.0),
    (257 * 128, 3, 64, 3, 1, 128, "tanh", 0.1),
    (999, 64, 256, 2, 17, 1, "relu", 0.3),
]


def network(hidden: int, blocks: int, frequencies: int, activation: str) -> EnergyNetwork:
    torch.manual_seed(hidden + blocks)
    net = EnergyNetwork(1 + 2 * frequencies, 8, hidden=hidden, blocks=blocks, activation=activation)
    for name, parameter in net.named_parameters():
        if "second" in name:  # starts at zero, where half of the gradients vanish
            torch.nn.init.normal_(parameter, std=0.3 / hidden**0.5)
    return net


def parameters(net: EnergyNetwork) -> list[Tensor]:
    parts = (net.from_value, net.blocks, net.final)
    return [net.from_context.bias, *(p for part in parts for p in part.parameters())]


def twin(
    net: EnergyNetwork, x: Tensor, omega: Tensor, projected: Tensor, dropout: float, seed: int
) -> Tensor:
    """The network written out, with the kernel's own dropout masks."""
    h = net.from_value(fourier_features(x, omega[:, None, :])) + net.from_context.bias
    h = h + projected[:, None, :]
    masks = dropout_mask(x.numel(), h.shape[-1], len(net.blocks), dropout, seed).to(x.device)
    for mask, block in zip(masks, net.blocks, strict=True):
        assert isinstance(block, ResidualBlock)
        u = net.activation(block.first(net.activation(h)))
        if dropout:
            u = u * mask.view_as(u) / (1 - dropout)
        h = h + block.second(u)
    f: Tensor = net.final(net.activation(h))[..., 0]
    return f


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.detach().double() - b.detach()).norm() / b.detach().norm().clamp_min(1e-9))


@pytest.mark.parametrize("shape", SHAPES + (LARGE if GPU else []))
def test_forward_and_gradients_agree_with_the_twin(
    shape: tuple[int, int, int, int, int, int, str, float],
) -> None:
    conditionals, nodes, hidden, blocks, frequencies, features, activation, dropout = shape
    if GPU:
        conditionals = max(
            conditionals, 1001
        )  # rounding turns some unit on or off: not in the mean
    net = network(hidden, blocks, frequencies, activation).to(DEVICE)
    x = torch.randn(conditionals, nodes, device=DEVICE)
    omega = torch.rand(features, frequencies, device=DEVICE) * 30
    projected = torch.randn(conditionals, hidden, device=DEVICE).requires_grad_()
    slope = torch.randn(conditionals, nodes, device=DEVICE)
    torch.manual_seed(5)
    f = applied(
        kernel.FusedEnergy,
        x,
        omega,
        projected,
        net.from_context.bias,
        net.from_value.weight,
        net.final.weight[0],
        net.final.bias,
        dropout,
        activation == "tanh",
        KIND,
        *net.blocks.parameters(),
    )
    found = torch.autograd.grad(f, [projected, *parameters(net)], slope)
    torch.manual_seed(5)
    seed = int(torch.randint(2**31 - 1, (1,), device=DEVICE))
    double = network(hidden, blocks, frequencies, activation).to(DEVICE).double()
    exact = projected.detach().double().requires_grad_()
    own = omega.double()[torch.arange(conditionals, device=DEVICE) % features]
    reference = twin(double, x.double(), own, exact, dropout, seed)
    expected = torch.autograd.grad(reference, [exact, *parameters(double)], slope.double())
    if not GPU:
        assert relative(f, reference) < 1e-5
        assert all(relative(a, b) < 1e-5 for a, b in zip(found, expected, strict=True))
        return
    # In bfloat16 nobody is exact; the kernel must be about as good as PyTorch's own mixed precision.
    own = own.float()
    with torch.autocast("cuda", torch.bfloat16):
        usual = twin(net, x, own, projected, dropout, seed)
    mixed = torch.autograd.grad(usual, [projected, *parameters(net)], slope)
    assert relative(f, reference) < 2.5 * relative(usual, reference) + 1e-3
    for a, b, c in zip(found, expected, mixed, strict=True):
        assert relative(a, b) < 2.5 * relative(c, b) + 1e-3


def test_the_kernels_compile_for_a_gpu(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    script = Path(__file__).with_name("compile_for_gpu.py")
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("energy_backward.cubin"))


def test_dropout_masks_are_as_random_as_they_should_be() -> None:
    """The right share is kept, and rows, columns and layers know nothing of each other."""
    masks = dropout_mask(4000, 128, 4, 0.2, 12345).double()
    assert float(masks.mean()) == pytest.approx(0.8, abs=0.002)
    centred = masks - 0.8
    noise = 0.16 / (4000 * 128) ** 0.5
    for shift in (1, 2, 20, 64):
        assert abs(float((centred[:, shift:] * centred[:, :-shift]).mean())) < 4 * noise
        assert abs(float((centred[..., shift:] * centred[..., :-shift]).mean())) < 4 * noise
    for i in range(3):
        assert abs(float((centred[i] * centred[i + 1]).mean())) < 4 * 2 * noise
    per_column = masks.mean(1)
    assert float(per_column.std()) < 1.3 * 0.4 / 4000**0.5
    other = dropout_mask(4000, 128, 4, 0.2, 12346)[0].double() - 0.8
    assert abs(float((centred[0] * other).mean())) < 4 * 2 * noise


@pytest.mark.parametrize(
    ("hidden", "blocks", "frequencies", "activation"),
    [(128, 4, 8, "relu"), (64, 1, 0, "relu"), (32, 2, 3, "tanh")],
)
def test_in_single_precision_it_agrees_to_seven_digits(
    hidden: int, blocks: int, frequencies: int, activation: str
) -> None:
    """Scores and samples: float64 nodes, phases of a thousand turns, float32 energies."""
    net = network(hidden, blocks, frequencies, activation).to(DEVICE)
    conditionals, nodes = 37, 5
    x = torch.randn(conditionals, nodes, device=DEVICE, dtype=torch.float64)
    omega = 2.0**13 * torch.rand(conditionals, frequencies, device=DEVICE, dtype=torch.float64)
    projected = torch.randn(conditionals, hidden, device=DEVICE, dtype=torch.float64)
    found = net._fused_in_single(x, omega, projected)
    expected = copy.deepcopy(net).double().at(x, omega, projected)
    for single in (found, net.at(x, omega, projected)):
        assert single.dtype == torch.float64
        torch.testing.assert_close(single, expected, rtol=0, atol=3e-6)
    # A row's number does not depend on the rows around it: bit for bit on a GPU. Here NumPy stands in
    # for its products, and makes no such promise.
    alone = net._fused_in_single(x[20:21], omega[20:21], projected[20:21])
    torch.testing.assert_close(alone, found[20:21], rtol=0, atol=0 if GPU else 1e-6)
