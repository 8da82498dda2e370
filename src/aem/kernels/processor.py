"""Residual blocks on a processor: a few thousand rows at a time, so that they stay in its cache.

h + W₂ dropout(relu(W₁ relu(h) + b₁)) + b₂, block after block, forward and backward written out. Three
things make this faster than the same operations one by one on the whole batch: elementwise work finds
its operands in cache, products accumulate where their sums are wanted (the residual, the weights'
gradients), and dropout costs little: `bernoulli_` draws a number an entry, here one 64-bit draw decides
eight, and all blocks of a chunk share the draws. The rate is therefore a multiple of 1/256, and the
scale follows the rate used, so that the mean is right.

Kept for the backward pass: what the two matrices of each block read, after ReLU and dropout; its zeros
say where no gradient flows.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from aem.kernels import applied

CHUNK = 4096  # rows: 2 MiB of float32 at 128 units
APART = 149  # rows between the random bytes of one block and the next

_threshold_backward = torch.ops.aten.threshold_backward.grad_input


def _zero_where(value: Tensor, key: Tensor, at_most: float) -> None:
    """value[key ≤ at_most] = 0, vectorised; masks of bool are several times slower."""
    _threshold_backward(value, key, at_most, grad_input=value)


class _Dropout:
    """Random bytes as floats that can be compared in place, drawn once for all blocks of a chunk.

    Each block reads them from another row on: a unit meets bytes of its own in every block, and the
    same bytes only in other rows.
    """

    def __init__(self, drop: int, like: Float[Tensor, "C H"], blocks: int) -> None:
        self.drop = drop
        rows, hidden = len(like) + max(blocks - 1, 0) * APART, like.shape[1]
        self.noise = like.new_empty((rows, hidden))
        self.bits = torch.empty((rows * hidden + 7) // 8, dtype=torch.int64)

    def draw(self) -> None:
        """Fresh bytes."""
        if self.drop:
            self.bits.random_(-(2**63), None)
            self.noise.copy_(
                self.bits.view(torch.uint8)[: self.noise.numel()].view(self.noise.shape)
            )

    def __call__(self, t: Float[Tensor, "R H"], block: int) -> None:
        """Zero what a block drops."""
        if self.drop:
            first = block * APART
            _zero_where(t, self.noise[first : first + len(t)], self.drop - 0.5)


class _ResidualBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, dropout: float, *weights: Tensor) -> Tensor:
        blocks, rows = len(weights) // 4, len(h)
        chunk = min(CHUNK, rows)
        drop = round(dropout * 256)
        scale = 256 / (256 - drop)
        first = [w.t().contiguous() for w in weights[0::4]]
        second = [w.t().contiguous() for w in weights[2::4]]
        # What the matrices read; its sign is the ReLU's (and the dropout's) mask.
        actives, middles = ([torch.empty_like(h) for _ in range(blocks)] for _ in range(2))
        result = torch.empty_like(h)
        thin_out = _Dropout(drop, h[:chunk], blocks)
        for start in range(0, rows, chunk):
            some = slice(start, min(start + chunk, rows))
            x = result[some].copy_(h[some])
            thin_out.draw()
            for i in range(blocks):
                active, t = actives[i][some], middles[i][some]
                torch.mm(torch.clamp_min(x, 0, out=active), first[i], out=t)
                t.add_(weights[4 * i + 1]).clamp_min_(0)
                thin_out(t, i)
                x.add_(weights[4 * i + 3]).addmm_(t, second[i], alpha=scale)
        ctx.save_for_backward(*weights, *actives, *middles)
        ctx.scale = scale
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scale, blocks, rows = ctx.scale, len(ctx.saved_tensors) // 6, len(grad)
        weights = ctx.saved_tensors[: 4 * blocks]
        actives, middles = ctx.saved_tensors[4 * blocks :][:blocks], ctx.saved_tensors[5 * blocks :]
        chunk = min(CHUNK, rows)
        result = torch.empty_like(grad)
        gradients = [torch.zeros_like(w) for w in weights]
        scaled = [w * scale for w in weights[2::4]]
        d_middle, d_input = (torch.empty_like(grad[:chunk]) for _ in range(2))
        ones = grad.new_ones(chunk)
        for start in range(0, rows, chunk):
            some = slice(start, min(start + chunk, rows))
            d = result[some].copy_(grad[some])
            count = len(d)
            for i in reversed(range(blocks)):
                active, t = actives[i][some], middles[i][some]
                d_first, d_first_bias, d_second, d_second_bias = gradients[4 * i : 4 * i + 4]
                d_second.addmm_(d.t(), t, alpha=scale)
                d_second_bias.addmv_(d.t(), ones[:count])
                dt = torch.mm(d, scaled[i], out=d_middle[:count])
                _zero_where(dt, t, 0)
                d_first.addmm_(dt.t(), active)
                d_first_bias.addmv_(dt.t(), ones[:count])
                dx = torch.mm(dt, weights[4 * i], out=d_input[:count])
                _zero_where(dx, active, 0)
                d.add_(dx)
        return result, None, *gradients


def residual_blocks(
    h: Float[Tensor, "R H"], dropout: float, *weights: Tensor
) -> Float[Tensor, "R H"]:
    """All blocks; weights are W₁, b₁, W₂, b₂ of each in turn. Differentiable once."""
    out: Tensor = applied(_ResidualBlocks, h, dropout, *weights)
    return out
