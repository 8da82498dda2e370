"""The energy network on a CPU, for as many nodes at a time as fit into the cache: a few thousand.

The first layer, h + W₂ dropout(relu(W₁ relu(h) + b₁)) + b₂ block after block, the last layer;
forward and backward written out. Three things make this faster than the same operations one by one
on the whole batch: elementwise work finds its operands in cache, products accumulate where their
sums are wanted (the residual, the weights' gradients), and dropout costs little: `bernoulli_` draws
a number an entry, here one 64-bit draw decides eight, and all blocks of a chunk share the draws.
The rate is therefore a multiple of 1/256, and the scale follows the rate used, so that the mean is
right.

Kept for the backward pass, where there will be one: what the matrices of each block and the last
layer read, after ReLU and dropout; its zeros say where no gradient flows. Where there will be none,
products are of one shape (`aem.nn.rowwise`), so that a node's energy does not depend on the nodes
around it.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from aem.base.randomness import generator
from aem.base.threads import alone
from aem.nn.kernels import applied
from aem.nn.rowwise import MANY, in_blocks, products, room

CHUNK = 4096  # nodes: 2 MiB of float32 at 128 units
APART = 149  # rows between the random bytes of one block and the next

# Memory of the last backward pass, for the next forward pass: fresh memory of this size costs a
# page fault every 4 KiB. Should it be written before the pass that reads it, autograd, which counts
# writes, raises. Each thread has its own.
_here, _lock = threading.local(), threading.Lock()
_everywhere: list[list[Tensor]] = []

_threshold_backward = torch.ops.aten.threshold_backward.grad_input


def _zero_where(value: Tensor, key: Tensor, at_most: float) -> None:
    """value[key ≤ at_most] = 0, vectorised; masks of bool are several times slower."""
    _threshold_backward(value, key, at_most, grad_input=value)


def _spare() -> list[Tensor]:
    """Return the memory that this thread keeps for its next step."""
    if not hasattr(_here, "spare"):
        _here.spare = []
        with _lock:
            _everywhere.append(_here.spare)
    spare: list[Tensor] = _here.spare
    return spare


def _room(like: Tensor, *shape: int) -> Tensor:
    """Return memory for the backward pass, reused from earlier steps where possible."""
    spare = _spare()
    while spare:
        memory = spare.pop()
        if memory.shape == shape and memory.dtype == like.dtype:
            return memory
    return like.new_empty(shape)


def release() -> None:
    """Free the memory that is kept from one step to the next."""
    for spare in _everywhere:
        spare.clear()


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
        """Draw new random bytes."""
        if self.drop:
            self.bits.random_(-(2**63), None, generator=generator())
            self.noise.copy_(
                self.bits.view(torch.uint8)[: self.noise.numel()].view(self.noise.shape)
            )

    def __call__(self, t: Float[Tensor, "R H"], block: int) -> None:
        """Set the dropped units of a block to zero."""
        if self.drop:
            first = block * APART
            _zero_where(t, self.noise[first : first + len(t)], self.drop - 0.5)


def _scale(drop: int) -> float:
    """Return the factor that compensates for dropped units."""
    return 256 / (256 - drop)


class _Layers(NamedTuple):
    """The parameters of the network by layer."""

    value: Tensor
    bias: Tensor
    blocks: list[tuple[Tensor, Tensor, Tensor, Tensor]]  # W₁, b₁, W₂, b₂ of each
    last: Tensor
    last_bias: Tensor

    @classmethod
    def of(cls, parameters: Sequence[Tensor]) -> "_Layers":
        """Sort parameters that come in the order of `parameters()`."""
        value, bias, last, last_bias, *weights = parameters
        blocks = list(zip(*(weights[k::4] for k in range(4)), strict=True))
        return cls(value, bias, blocks, last, last_bias)


@alone()
def _through(
    kept: Float[Tensor, "L N H"],
    embedded: Float[Tensor, "N E"],
    projected: Float[Tensor, "C H"],
    drop: int,
    *parameters: Tensor,
) -> Float[Tensor, " N"]:
    """Compute f of all nodes; `kept` receives the inputs of the matrices."""
    layers, rows, nodes = _Layers.of(parameters), len(embedded), len(embedded) // len(projected)
    matrices = [(w.t().contiguous(), v.t().contiguous()) for w, _, v, _ in layers.blocks]
    chunk = _chunk(nodes, rows)
    shift = projected + layers.bias
    f = embedded.new_empty(rows)
    stream = shift.new_empty((chunk, shift.shape[1]))
    thin_out = _Dropout(drop, stream, len(layers.blocks))
    for some, conditionals in _chunks(chunk, nodes, rows):
        count = some.stop - some.start
        rooms = list(kept[:, some])
        x = torch.mm(embedded[some], layers.value.t(), out=stream[:count])
        x.unflatten(0, (-1, nodes)).add_(shift[conditionals, None])
        thin_out.draw()
        for i, (_, first_bias, _, second_bias) in enumerate(layers.blocks):
            first, second = matrices[i]
            active, t = rooms[2 * i : 2 * i + 2]
            torch.mm(torch.clamp_min(x, 0, out=active), first, out=t)
            t.add_(first_bias).clamp_min_(0)
            thin_out(t, i)
            x.add_(second_bias).addmm_(t, second, alpha=_scale(drop))
        torch.mv(torch.clamp_min(x, 0, out=rooms[-1]), layers.last, out=f[some])
    return f.add_(layers.last_bias)


@alone()
def _evaluate(
    embedded: Float[Tensor, "N E"],
    projected: Float[Tensor, "C H"],
    drop: int,
    *parameters: Tensor,
) -> Float[Tensor, " N"]:
    """Compute f without gradients: nothing is kept, and products have one shape."""
    layers, rows, nodes = _Layers.of(parameters), len(embedded), len(embedded) // len(projected)
    chunk = _chunk(nodes, rows)
    shift = projected + layers.bias
    f = embedded.new_empty(rows)
    most = -(-chunk // MANY) * MANY
    memories = [room(most, shift.shape[1], like=embedded) for _ in range(3)]
    thin_out = _Dropout(drop, memories[0], len(layers.blocks))
    for some, conditionals in _chunks(chunk, nodes, rows):
        count = some.stop - some.start
        read = in_blocks(embedded[some], MANY)
        own = [memory[: len(read) * MANY] for memory in memories]
        x, active, t = own
        in_x, in_active, in_t = (memory.unflatten(0, (-1, MANY)) for memory in own)
        products(read, layers.value, out=in_x)
        x[:count].unflatten(0, (-1, nodes)).add_(shift[conditionals, None])
        thin_out.draw()
        for i, (first, first_bias, second, second_bias) in enumerate(layers.blocks):
            torch.clamp_min(x, 0, out=active)
            products(in_active, first, out=in_t)
            t.add_(first_bias).clamp_min_(0)
            thin_out(t, i)
            x.add_(second_bias)
            in_x.baddbmm_(in_t, second.t().expand(len(read), -1, -1), alpha=_scale(drop))
        torch.sum(torch.clamp_min(x, 0, out=active).mul_(layers.last)[:count], -1, out=f[some])
    return f.add_(layers.last_bias)


class _Energy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        embedded: Tensor,
        projected: Tensor,
        drop: int,
        *parameters: Tensor,
    ) -> Tensor:
        value, bias, last, _, *weights = parameters
        # What the matrices read; its sign is the ReLU's (and the dropout's) mask.
        kept = _room(embedded, len(weights) // 2 + 1, len(embedded), len(bias))
        ctx.save_for_backward(embedded, value, last, kept, *weights)
        ctx.scale, ctx.nodes = _scale(drop), len(embedded) // len(projected)
        return _through(kept, embedded, projected, drop, *parameters)

    @staticmethod
    @once_differentiable
    @alone()
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        embedded, value, last, kept, *weights = ctx.saved_tensors
        scale, nodes, blocks, (_, rows, hidden) = (
            ctx.scale,
            ctx.nodes,
            len(weights) // 4,
            kept.shape,
        )
        actives, middles, ends = kept[0:-1:2], kept[1::2], kept[-1]
        chunk = _chunk(nodes, rows)
        learns = any(
            ctx.needs_input_grad[3:]
        )  # a gradient in the nodes or contexts alone is faster
        d_embedded = torch.empty_like(embedded) if ctx.needs_input_grad[0] else None
        d_projected = grad.new_empty((rows // nodes, hidden))
        d_value, d_last = torch.zeros_like(value), torch.zeros_like(last)
        gradients = [torch.zeros_like(w) for w in weights]
        scaled = [w * scale for w in weights[2::4]]
        d_stream, d_middle, d_input = grad.new_empty((3, chunk, hidden))
        ones = grad.new_ones(chunk)
        for some, conditionals in _chunks(chunk, nodes, rows):
            count = some.stop - some.start
            d = torch.outer(grad[some], last, out=d_stream[:count])
            _zero_where(d, ends[some], 0)
            for i in reversed(range(blocks)):
                active, t = actives[i, some], middles[i, some]
                dt = torch.mm(d, scaled[i], out=d_middle[:count])
                _zero_where(dt, t, 0)
                if learns:
                    d_first, d_first_bias, d_second, d_second_bias = gradients[4 * i : 4 * i + 4]
                    d_second.addmm_(d.t(), t, alpha=scale)
                    d_second_bias.addmv_(d.t(), ones[:count])
                    d_first.addmm_(dt.t(), active)
                    d_first_bias.addmv_(dt.t(), ones[:count])
                dx = torch.mm(dt, weights[4 * i], out=d_input[:count])
                _zero_where(dx, active, 0)
                d.add_(dx)
            torch.sum(d.view(-1, nodes, hidden), 1, out=d_projected[conditionals])
            if learns:
                d_last.addmv_(ends[some].t(), grad[some])
                d_value.addmm_(d.t(), embedded[some])
            if d_embedded is not None:
                torch.mm(d, value, out=d_embedded[some])
        if all(memory.data_ptr() != kept.data_ptr() for memory in _spare()):
            _spare().append(kept.detach())
        outer = d_value, d_projected.sum(0), d_last, grad.sum()
        return d_embedded, d_projected, None, *outer, *gradients


def _chunk(nodes: int, rows: int) -> int:
    """Return the number of rows per chunk: whole conditionals, and whole blocks where possible."""
    both = math.lcm(nodes, MANY)
    whole = both if both <= CHUNK else nodes
    return min(max(CHUNK // whole, 1) * whole, rows)


def _chunks(chunk: int, nodes: int, rows: int) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and the conditionals of each chunk."""
    for start in range(0, rows, chunk):
        stop = min(start + chunk, rows)
        yield slice(start, stop), slice(start // nodes, stop // nodes)


def energy(
    embedded: Float[Tensor, "*B S E"],
    projected: Float[Tensor, "*B H"],
    dropout: float,
    value: Float[Tensor, "H E"],
    bias: Float[Tensor, " H"],
    last: Float[Tensor, " H"],
    last_bias: Float[Tensor, " 1"],
    *weights: Tensor,
) -> Float[Tensor, "*B S"]:
    """Return f at the nodes, differentiable once, for residual blocks with ReLU.

    Parameters
    ----------
    embedded
        nodes with their Fourier features [..., S, E].
    projected
        what the context adds to the first layer [..., H].
    dropout
        share of the units left out.
    value
        weights of the first layer for the embedded value.
    bias
        bias of the first layer.
    last
        weights of the last layer.
    last_bias
        its bias.
    weights
        W₁, b₁, W₂, b₂ of each block.
    """
    flat = embedded.reshape(-1, embedded.shape[-1]), projected.reshape(-1, projected.shape[-1])
    drop = round(dropout * 256)
    parameters = value, bias, last, last_bias[0], *weights
    f: Tensor
    if torch.is_grad_enabled() and any(t.requires_grad for t in (*flat, *parameters)):
        f = applied(_Energy, *flat, drop, *parameters)
    else:
        f = _evaluate(*flat, drop, *parameters)
    return f.view(embedded.shape[:-1])
