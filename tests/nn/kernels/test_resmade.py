"""ResMADE by kernels against the same network in float64, forward and gradients."""

import pytest
import torch
from tests.support.triton_here import DEVICE, GPU, KIND
from torch import Tensor

from aem.nn.features import REACH, FourierFeatures
from aem.nn.kernels import applied, is_tanh, layers
from aem.nn.kernels import resmade as kernel
from aem.nn.kernels.packing import Packed
from aem.nn.masks import MaskedLinear
from aem.nn.resmade import ResMADE
from tests.support.dropout import dropout_mask

# rows, features, hidden, blocks, outputs, frequencies, activation, dropout
SHAPES = [
    (5, 2, 32, 1, 3, 0, "relu", 0.0),
    (33, 3, 48, 2, 7, 2, "tanh", 0.0),
    (40, 6, 64, 2, 5, 3, "relu", 0.25),
    (17, 1, 32, 1, 4, 1, "tanh", 0.2),
    (70, 31, 112, 1, 2, 0, "relu", 0.5),
]
LARGE = [
    (256, 2, 256, 4, 124, 8, "relu", 0.2),
    (513, 63, 1024, 4, 124, 0, "relu", 0.2),
    (512, 21, 512, 4, 124, 8, "tanh", 0.1),
    (2000, 128, 256, 2, 10, 0, "relu", 0.0),
]
Shape = tuple[int, int, int, int, int, int, str, float]


def network(shape: Shape) -> ResMADE:
    _, features, hidden, blocks, outputs, frequencies, activation, dropout = shape
    torch.manual_seed(hidden)
    embedding = FourierFeatures(torch.rand(features, frequencies) * 20)
    net = ResMADE(
        embedding, outputs, hidden=hidden, blocks=blocks, activation=activation, dropout=dropout
    )
    for block in net.residual_blocks():  # starts at zero, where half of the gradients vanish
        assert isinstance(block.second, MaskedLinear)
        torch.nn.init.normal_(block.second.weight, std=0.5 / hidden**0.5)
        block.second.erase_masked()
    return net


def twin(net: ResMADE, x: Tensor, dropout: float, seed: int) -> Tensor:
    """The network written out, with the kernel's own dropout masks."""
    h = net.initial(net.embedding(x).flatten(-2))
    masks = dropout_mask(len(x), h.shape[-1], len(net.blocks), dropout, seed).to(x.device)
    for mask, block in zip(masks, net.residual_blocks(), strict=True):
        u = net.activation(block.first(net.activation(h)))
        if dropout:
            u = u * mask / (1 - dropout)
        h = h + block.second(u)
    out: Tensor = net.final(net.activation(h))
    return out


def fused(net: ResMADE, x: Tensor, dropout: float) -> Tensor:
    degrees = kernel.Degrees(*(d.to(DEVICE, torch.int32) for d in net.degrees))
    embedded = kernel.embed(x, net.embedding.frequencies, REACH, torch.float32)
    tanh = is_tanh(net.activation_name)
    out: Tensor = applied(
        kernel.FusedResMADE,
        embedded,
        degrees,
        dropout,
        tanh,
        KIND,
        *net.parameters(),
    )
    return out


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.detach().double() - b.detach()).norm() / b.detach().norm().clamp_min(1e-9))


@pytest.mark.parametrize("shape", SHAPES + (LARGE if GPU else []))
def test_forward_and_gradients_agree_with_the_twin(shape: Shape) -> None:
    rows, features, dropout = shape[0], shape[1], shape[-1]
    if GPU:
        rows = max(rows, 1001)  # rounding turns some unit on or off: not in the mean
    net = network(shape).to(DEVICE)
    x = torch.randn(rows, features, device=DEVICE)
    slope = torch.randn(rows, features * net.outputs, device=DEVICE)
    torch.manual_seed(7)
    out = fused(net, x, dropout)
    found = torch.autograd.grad(out, list(net.parameters()), slope)
    torch.manual_seed(7)
    seed = int(torch.randint(2**31 - 1, (1,), device=DEVICE))
    double = network(shape).to(DEVICE).double()
    reference = twin(double, x.double(), dropout, seed)
    expected = torch.autograd.grad(reference, list(double.parameters()), slope.double())
    if not GPU:
        assert relative(out, reference) < 1e-5
        assert all(relative(a, b) < 1e-5 for a, b in zip(found, expected, strict=True))
        return
    # In bfloat16 nobody is exact; the kernels must be about as good as PyTorch's own mixed precision.
    with torch.autocast("cuda", torch.bfloat16):
        usual = twin(net, x, dropout, seed)
    mixed = torch.autograd.grad(usual, list(net.parameters()), slope)
    assert relative(out, reference) < 2.5 * relative(usual, reference) + 1e-3
    for a, b, c in zip(found, expected, mixed, strict=True):
        assert relative(a, b) < 2.5 * relative(c, b) + 1e-3


def test_the_first_layer_reads_rows_with_all_their_digits() -> None:
    """Weights have few digits, values may not: where an edge lies, a hundredth decides the side."""
    few = torch.bfloat16 if GPU else torch.float16
    x = (3 + torch.rand(40, 5, device=DEVICE)).contiguous()
    weight = torch.randn(32, 5, device=DEVICE).to(few)
    tiles = layers.tiles_for(len(x), len(weight))
    ends = torch.full((-(-32 // tiles.columns),), 5, dtype=torch.int32, device=DEVICE)
    found = x.new_empty(40, 32)
    layers.forward_layer(x, weight, x.new_zeros(32), ends, tiles, total=found)
    exact = x.double() @ weight.double().t()
    rounded = x.to(few).double() @ weight.double().t()
    assert relative(found, exact) < 1e-5 < 0.1 * relative(rounded, exact)


def test_masked_weights_have_no_gradient() -> None:
    net = network(SHAPES[2]).to(DEVICE)
    out = fused(net, torch.randn(40, 6, device=DEVICE), 0.0)
    out.sum().backward()
    for layer in (net.initial, net.final, net.residual_blocks()[0].first):
        assert isinstance(layer, MaskedLinear)
        assert layer.weight.grad is not None
        assert not (layer.weight.grad * (1 - layer.mask)).any()


def test_packed_parameters_get_their_gradients_in_place() -> None:
    """The same numbers, written where the optimiser reads them."""
    shape = SHAPES[2]
    net, packed_net = network(shape).to(DEVICE), network(shape).to(DEVICE)
    packed = Packed([packed_net.parameters()])
    packed.half = packed.weights.to(KIND)
    x = torch.randn(40, 6, device=DEVICE)
    expected = torch.autograd.grad(fused(net, x, 0.0).square().sum(), list(net.parameters()))
    found = torch.autograd.grad(
        fused(packed_net, x, 0.0).square().sum(), list(packed_net.parameters())
    )
    for a, b, p in zip(found, expected, packed_net.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() == packed.gradient_of(p).data_ptr()


def test_weights_used_twice_get_the_sum_of_both_gradients() -> None:
    shape = SHAPES[2]
    net, packed_net = network(shape).to(DEVICE), network(shape).to(DEVICE)
    packed = Packed([packed_net.parameters()])
    packed.half = packed.weights.to(KIND)
    x, y = torch.randn(2, 40, 6, device=DEVICE)

    def gradients(of: ResMADE) -> tuple[Tensor, ...]:
        loss = fused(of, x, 0.0).square().sum() + fused(of, y, 0.0).sum()
        return torch.autograd.grad(loss, list(of.parameters()))

    for a, b in zip(gradients(packed_net), gradients(net), strict=True):
        torch.testing.assert_close(a, b)
