"""Products whose rows do not depend on the rows around them.

A BLAS rounds a row of a product in one way or another: how depends on how many rows the product
has, on how threads share it, and on whether the row begins at a cache line. A score must not depend
on that. So on a processor, where no gradient is wanted, rows go through products of one fixed shape,
the last one filled up with zeros, each computed by one thread, and every row begins at a cache line.
What is left to the BLAS is that such a product treats its rows alike; a test asks it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aem.threads import alone

FEW = 48  # rows, where there may be few, as of a table: a single one costs as much as these
MANY = 240  # where there are many, as of nodes and panels
CACHE_LINE = 64  # bytes


def room(rows: int, width: int, like: Tensor) -> Tensor:
    """Zeros [rows, width] of a tensor's type, each row at the beginning of a cache line."""
    return like.new_zeros(rows, padded(width, like))[:, :width]


def padded(width: int, like: Tensor) -> int:
    """How many numbers of a tensor's type fill whole cache lines."""
    line = CACHE_LINE // like.element_size()
    return -(-width // line) * line


def aligned(x: Tensor) -> Tensor:
    """The same rows, each at the beginning of a cache line."""
    size = x.element_size()
    if x.stride(1) == 1 and not (x.stride(0) * size % CACHE_LINE or x.data_ptr() % CACHE_LINE):
        return x
    return room(len(x), x.shape[1], like=x).copy_(x)


def blockwise(operation: Callable[..., Tensor], block: int, *operands: Tensor) -> Tensor:
    """What a row-by-row operation makes of operands with as many rows each, a block at a time."""
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


def blockwise_(operation: Callable[..., object], block: int, *operands: Tensor) -> None:
    """An operation that writes into its first operand, `block` rows at a time."""
    rows = len(operands[0])
    whole = rows - rows % block
    if whole:
        for parts in zip(*(t[:whole].split(block) for t in operands), strict=True):
            operation(*parts)
    if whole < rows:
        filled = [_filled(t, block) for t in operands]
        operation(*filled)
        operands[0][whole:] = filled[0][: rows - whole]


def _filled(t: Tensor, block: int) -> Tensor:
    """The last rows, with zeros after them."""
    rest = len(t) % block
    wide = t.ndim == 2
    filled = room(block, t.shape[1], like=t) if wide else t.new_zeros(block, *t.shape[1:])
    filled[:rest] = t[len(t) - rest :]
    return filled


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, block: int = FEW) -> Tensor:
    """x Wᵀ + b for rows x [*B, I]."""
    learning = torch.is_grad_enabled() and (
        weight.requires_grad or (bias is not None and bias.requires_grad)
    )
    if learning or x.device.type != "cpu":
        return F.linear(x, weight, bias)
    flat = aligned(x.flatten(0, -2) if x.ndim > 1 else x[None])
    product = blockwise(lambda rows: F.linear(rows, weight, bias), block, flat)
    return product.view(*x.shape[:-1], len(weight))


class Linear(nn.Linear):
    """PyTorch's layer with such products."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer."""
        return linear(input, self.weight, self.bias)
