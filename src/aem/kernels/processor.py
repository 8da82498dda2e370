"""Residual blocks on a processor: a few thousand rows at a time, so that they stay in its cache.

h + W₂ dropout(relu(W₁ relu(h) + b₁)) + b₂, block after block, forward and backward written out. Three
things make this faster than the same operations one by one on the whole batch: elementwise work finds
its operands in cache, products accumulate where their sums are wanted (the residual, the weights'
gradients), and dropout costs little: `bernoulli_` draws a number an entry, here one 64-bit draw decides
eight. The rate is therefore a multiple of 1/256, and the scale follows the rate used, so that the mean
is right.

Kept for the backward pass: the input of each block and its middle after ReLU and dropout, whose
zeros say where no gradient flows.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 2048  # rows: 1 MiB of float32 at 128 units

_threshold_backward = torch.ops.aten.threshold_backward.grad_input


def _zero_where(value: Tensor, key: Tensor, at_most: float) -> None:
    """value[key ≤ at_most] = 0, vectorised; masks of bool are several times slower."""
    _threshold_backward(value, key, at_most, grad_input=value)


class _Dropout:
    """Random bytes, turned into floats that can be compared in place."""

    def __init__(self, drop: int, like: Float[Tensor, "C H"]) -> None:
        self.drop = drop
        self.noise = torch.empty_like(like)
        self.bits = torch.empty((like.numel() + 7) // 8, dtype=torch.int64)

    def __call__(self, t: Float[Tensor, "R H"]) -> None:
        if not self.drop:
            return
        self.bits.random_(-(2**63), None)
        noise = self.noise[: len(t)]
        noise.copy_(self.bits.view(torch.uint8)[: t.numel()].view(t.shape))
        _zero_where(t, noise, self.drop - 0.5)


class _ResidualBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, dropout: float, *weights: Tensor) -> Tensor:
        blocks, rows = len(weights) // 4, len(h)
        chunk = min(CHUNK, rows)
        drop = round(dropout * 256)
        scale = 256 / (256 - drop)
        first = [w.t().contiguous() for w in weights[0::4]]
        second = [w.t().contiguous() for w in weights[2::4]]
        inputs = [h, *(torch.empty_like(h) for _ in range(blocks))]
        middles = [torch.empty_like(h) for _ in range(blocks)]
        active = torch.empty_like(h[:chunk])
        thin_out = _Dropout(drop, active)
        for start in range(0, rows, chunk):
            some = slice(start, min(start + chunk, rows))
            for i in range(blocks):
                x, t = inputs[i][some], middles[i][some]
                torch.mm(torch.clamp_min(x, 0, out=active[: len(x)]), first[i], out=t)
                t.add_(weights[4 * i + 1]).clamp_min_(0)
                thin_out(t)
                torch.add(x, weights[4 * i + 3], out=inputs[i + 1][some])
                inputs[i + 1][some].addmm_(t, second[i], alpha=scale)
        ctx.save_for_backward(*weights, *inputs[:-1], *middles)
        ctx.scale = scale
        return inputs[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scale, blocks, rows = ctx.scale, len(ctx.saved_tensors) // 6, len(grad)
        weights = ctx.saved_tensors[: 4 * blocks]
        inputs, middles = ctx.saved_tensors[4 * blocks :][:blocks], ctx.saved_tensors[5 * blocks :]
        chunk = min(CHUNK, rows)
        result = torch.empty_like(grad)
        gradients = [torch.zeros_like(w) for w in weights]
        scaled = [w * scale for w in weights[2::4]]
        active, d_middle, d_input = (torch.empty_like(grad[:chunk]) for _ in range(3))
        ones = grad.new_ones(chunk)
        for start in range(0, rows, chunk):
            some = slice(start, min(start + chunk, rows))
            d = result[some].copy_(grad[some])
            count = len(d)
            for i in reversed(range(blocks)):
                x, t = inputs[i][some], middles[i][some]
                d_first, d_first_bias, d_second, d_second_bias = gradients[4 * i : 4 * i + 4]
                d_second.addmm_(d.t(), t, alpha=scale)
                d_second_bias.addmv_(d.t(), ones[:count])
                dt = torch.mm(d, scaled[i], out=d_middle[:count])
                _zero_where(dt, t, 0)
                d_first.addmm_(dt.t(), torch.clamp_min(x, 0, out=active[:count]))
                d_first_bias.addmv_(dt.t(), ones[:count])
                dx = torch.mm(dt, weights[4 * i], out=d_input[:count])
                _zero_where(dx, x, 0)
                d.add_(dx)
        return result, None, *gradients


def residual_blocks(
    h: Float[Tensor, "R H"], dropout: float, *weights: Tensor
) -> Float[Tensor, "R H"]:
    """All blocks; weights are W₁, b₁, W₂, b₂ of each in turn. Differentiable once."""
    out: Tensor = _ResidualBlocks.apply(h, dropout, *weights)  # type: ignore[no-untyped-call]
    return out
