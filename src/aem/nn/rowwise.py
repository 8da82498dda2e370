"""Matrix products whose rows do not depend on the other rows.

How a BLAS rounds a row of a product depends on the number of rows, on the number of threads, and on
whether the row begins at a cache line. A score must not depend on these. On a CPU without gradients,
rows are therefore multiplied in batches of products of one fixed shape, the last one padded, on one
thread, and every row begins at a cache line. The remaining assumption, which a test checks, is that
the BLAS treats the rows of such a product alike, and each product of a batch as if it were alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aem.base.threads import alone

FEW = 48  # rows per product for rows of a table; a single row costs as much
MANY = 240  # rows per product for nodes and panels
CACHE_LINE = 64  # bytes


def room(rows: int, width: int, like: Tensor) -> Tensor:
    """Allocate rows, each of which begins at a cache line.

    Parameters
    ----------
    rows
        how many rows there are.
    width
        how many numbers each has.
    like
        a tensor of the type and device that they will have.
    """
    return like.new_empty(rows, padded(width, like))[:, :width]


def padded(width: int, like: Tensor) -> int:
    """Return how many numbers fill whole cache lines.

    Parameters
    ----------
    width
        how many must fit, at least.
    like
        a tensor of their type.
    """
    line = CACHE_LINE // like.element_size()
    return -(-width // line) * line


def aligned(x: Tensor) -> Tensor:
    """Return rows in memory where each begins at a cache line.

    Parameters
    ----------
    x
        rows [N, I], copied only if they do not lie so already.
    """
    size = x.element_size()
    if x.stride(1) == 1 and not (x.stride(0) * size % CACHE_LINE or x.data_ptr() % CACHE_LINE):
        return x
    return room(len(x), x.shape[1], like=x).copy_(x)


def blockwise(operation: Callable[..., Tensor], block: int, *operands: Tensor) -> Tensor:
    """Apply a row-by-row operation to blocks of rows, or to all rows on a GPU and in training.

    Parameters
    ----------
    operation
        a function of as many tensors as there are operands.
    block
        rows of a block; the last one is filled up with zeros.
    operands
        tensors with as many rows each.
    """
    rows = len(operands[0])
    recorded = torch.is_grad_enabled() and any(t.requires_grad for t in operands)
    if recorded or operands[0].device.type != "cpu":
        return operation(*operands)
    with alone():
        parts = [
            operation(*(t[start : start + block] for t in operands))
            for start in range(0, rows - rows % block, block)
        ]
        if rows % block or not rows:
            parts.append(operation(*(_filled(t, block) for t in operands))[: rows % block])
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _filled(t: Tensor, block: int) -> Tensor:
    """Return the last rows, padded with zeros."""
    filled, rest = t.new_zeros(block, *t.shape[1:]), len(t) % block
    filled[:rest] = t[len(t) - rest :]
    return filled


def in_blocks(x: Tensor, block: int) -> Tensor:
    """Return rows [N, I] as blocks [B, block, I], the last one padded with zeros.

    Parameters
    ----------
    x
        rows [N, I], of any N.
    block
        rows of a block.
    """
    filled = -(-len(x) // block) * block
    if filled == len(x):
        x = aligned(x)
    else:
        rest, x = x, room(filled, x.shape[1], like=x)
        x[: len(rest)], x[len(rest) :] = rest, 0
    blocks: Tensor = x.unflatten(0, (-1, block))
    return blocks


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, block: int = FEW) -> Tensor:
    """Return x Wᵀ + b, each row's result independent of the other rows.

    Where gradients are recorded, and on a GPU, it is PyTorch's product.

    Parameters
    ----------
    x
        rows [*B, I].
    weight
        W [O, I].
    bias
        b [O], or None.
    block
        rows of a product: `FEW` where there may be few, `MANY` where there are many.
    """
    learning = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, weight, bias)
    )
    if learning or x.device.type != "cpu":
        return F.linear(x, weight, bias)
    flat = x.flatten(0, -2) if x.ndim > 1 else x[None]
    with alone():
        product = products(in_blocks(flat, block), weight).flatten(0, 1)[: len(flat)]
    if bias is not None:
        product.add_(bias)
    return product.view(*x.shape[:-1], len(weight))


def products(blocks: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """Return x Wᵀ of the rows of blocks.

    Parameters
    ----------
    blocks
        rows [B, block, I].
    weight
        W [O, I].
    out
        memory for the result [B, block, O]; allocated without it.
    """
    if weight.shape[1] == 1:  # no sums, and much faster so
        return torch.mul(blocks, weight[:, 0], out=out)
    if len(weight) == 1:  # which a BLAS would not treat as a product
        return torch.sum(blocks * weight, -1, keepdim=True, out=out)
    return torch.bmm(blocks, weight.t().expand(len(blocks), -1, -1), out=out)


class Linear(nn.Linear):
    """PyTorch's linear layer, each row's result independent of the other rows."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer.

        Parameters
        ----------
        input
            rows [*B, I].
        """
        return linear(input, self.weight, self.bias)
