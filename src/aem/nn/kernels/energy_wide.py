"""The energy network with one launch per layer: for networks too wide to keep on chip."""

import torch
import triton
from torch import Tensor

from aem.nn.features import fourier_features
from aem.nn.kernels.arithmetic import multipliers, sum_parts
from aem.nn.kernels.energy_operands import EnergyOperands
from aem.nn.kernels.layers import LARGE, backward_layer, forward_layer, weight_gradients
from aem.nn.kernels.packing import Memory

PARTS = 16  # that sums over all nodes are taken in


def wide_forward(call: EnergyOperands, saved: Tensor, seed: Tensor) -> Tensor:
    """Compute f at all nodes; `saved` receives the inputs of the matrices, if it has room."""
    x, frequencies, memory, tanh = call.x, call.frequencies, call.blocks, call.tanh
    (_, whole, hidden), m, kind = saved.shape, x.numel(), saved.dtype
    layers = memory.half.view(-1, hidden * hidden + hidden)
    biases = memory.weights.view_as(layers)[:, hidden**2 :]
    place = torch.arange(len(x), device=x.device) % len(frequencies)
    embedded = fourier_features(x, frequencies[place][:, None, :])
    h = torch.zeros((whole, hidden), device=x.device)
    by_value = embedded.to(kind) @ call.value.to(kind).t()
    h[:m] = (by_value + (call.projected + call.first_bias)[:, None, :]).view(m, hidden)
    tiles = triton.cdiv(hidden, LARGE.columns)
    ends = torch.full((tiles,), hidden, dtype=torch.int32, device=x.device)  # nothing masked
    a, u = h.new_empty((2, whole, hidden), dtype=kind)
    a.copy_(h.tanh() if tanh else h.relu())
    factors = multipliers(len(layers) // 2, hidden, x.device)
    for k in range(0, len(layers), 2):
        if len(saved):
            saved[k] = a
            u = saved[k + 1]
        first, second = (layers[i, : hidden**2].view(hidden, hidden) for i in (k, k + 1))
        forward_layer(
            a, first, biases[k], ends, LARGE, active=u, tanh=tanh, dropout=call.dropout, seed=seed,
            multipliers=factors[k // 2],
        )  # fmt: skip
        forward_layer(u, second, biases[k + 1], ends, LARGE, total=h, add=True, active=a, tanh=tanh)
    if len(saved):
        saved[-1] = a
    f: Tensor = a[:m].float() @ call.final + call.final_bias
    return f.view(x.shape)


def wide_backward(
    saved: Tensor, slopes: Tensor, memory: Memory, dropout: float, tanh: bool
) -> Tensor:
    """Compute the gradient before all blocks from that behind them, and those of the weights."""
    layers, _, hidden = saved.shape
    matrices = memory.half.view(layers - 1, -1)
    nowhere = torch.zeros(hidden, dtype=torch.int32, device=saved.device)  # degrees: nothing masked
    # behind[i] lies behind matrix i, the last one below all blocks.
    behind = torch.empty_like(saved)
    behind[-2] = slopes
    for k in reversed(range(layers // 2)):
        first, second = (matrices[i, : hidden**2].view(hidden, hidden) for i in (2 * k, 2 * k + 1))
        outer, inner, below = behind[2 * k + 1], behind[2 * k], behind[2 * k - 1]
        backward_layer(
            outer, second, nowhere, LARGE, gate=saved[2 * k + 1], out=inner, tanh=tanh,
            dropout=dropout,
        )  # fmt: skip
        backward_layer(
            inner, first, nowhere, LARGE, gate=saved[2 * k], out=below, above=outer, tanh=tanh
        )
    parts = memory.gradients.new_empty((PARTS, layers - 1, matrices.shape[1]))
    weight_gradients(
        behind[:-1], saved[:-1], nowhere, nowhere, parts[..., : hidden**2], parts[..., hidden**2 :],
        strict=False, kind=saved.dtype, parts=PARTS,
    )  # fmt: skip
    sum_parts(parts, memory.gradients)
    return behind[-1]
