"""The ranking objective on a GPU: log w(x) − log mean w, and log mean w, from f.

The softplus, its floor and the normalisation of `aem.conditionals.batch` and
`aem.conditionals.estimates` in one pass over the nodes each way.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _log_weights(  # type: ignore[no-untyped-def]
    f_ptr, own_ptr, rows, C, S, depth, NODES: tl.constexpr
):  # fmt: skip
    """log w [rows, nodes], its slope with respect to f, and which node is the data."""
    node = tl.arange(0, NODES)
    known = (rows < C)[:, None] & (node < S)[None, :]
    f = tl.load(f_ptr + rows[:, None] * S + node[None, :], mask=known, other=0.0)
    small = tl.exp(-tl.abs(f))
    s = tl.maximum(f, 0.0) + tl.where(small < 1e-4, small, tl.log(1 + small))
    bend = 1 / (1 + s / depth)
    sigmoid = tl.where(f >= 0, 1.0, small) / (1 + small)
    own = tl.load(own_ptr + rows, mask=rows < C, other=0)
    chosen = (node[None, :] == own[:, None]) & known
    log_w = tl.where(known, -s * bend, -float("inf"))
    return log_w, -sigmoid * bend * bend, chosen, known


@triton.jit
def _ranking_forward(  # type: ignore[no-untyped-def]
    f_ptr, own_ptr, out_ptr, log_z_ptr, C, S, depth, log_nodes,
    ROWS: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    log_w, _, chosen, _ = _log_weights(f_ptr, own_ptr, rows, C, S, depth, NODES)
    top = tl.where(rows < C, tl.max(log_w, 1), 0.0)
    total = top + tl.log(tl.maximum(tl.sum(tl.exp(log_w - top[:, None]), 1), 1e-30))
    data = tl.sum(tl.where(chosen, log_w, 0.0), 1)
    tl.store(out_ptr + rows, data - total + log_nodes, mask=rows < C)
    tl.store(log_z_ptr + rows, total - log_nodes, mask=rows < C)


@triton.jit
def _ranking_backward(  # type: ignore[no-untyped-def]
    grad_ptr, by_log_z_ptr, f_ptr, own_ptr, out_ptr, C, S, depth,
    ROWS: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    log_w, by_f, chosen, known = _log_weights(f_ptr, own_ptr, rows, C, S, depth, NODES)
    top = tl.where(rows < C, tl.max(log_w, 1), 0.0)
    w = tl.exp(log_w - top[:, None])
    share = w / tl.maximum(tl.sum(w, 1), 1e-30)[:, None]
    grad = tl.load(grad_ptr + rows, mask=rows < C, other=0.0)
    by_log_z = tl.load(by_log_z_ptr + rows, mask=rows < C, other=0.0)
    out = (grad[:, None] * (chosen.to(tl.float32) - share) + by_log_z[:, None] * share) * by_f
    there = rows[:, None] * S + tl.arange(0, NODES)[None, :]
    tl.store(out_ptr + there, out, mask=known)


class FusedRanking(torch.autograd.Function):
    """f [C, S] and the data's place [C] → log w(data) − log mean w, and log mean w, both [C]."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, own: Tensor, depth: float) -> tuple[Tensor, Tensor]:
        """Compute both in one pass over the nodes."""
        f = f.contiguous()
        out = torch.empty_like(own, dtype=torch.float32)
        log_z = torch.empty_like(out)
        (count, nodes), rows = f.shape, _rows(f)
        _ranking_forward[(triton.cdiv(count, rows),)](
            f, own, out, log_z, count, nodes, depth, math.log(nodes),
            ROWS=rows, NODES=triton.next_power_of_2(nodes), num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(f, own)
        ctx.depth = depth
        return out, log_z

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Compute the gradient in one pass over the nodes."""
        f, own = ctx.saved_tensors
        (count, nodes), rows = f.shape, _rows(f)
        out = torch.empty_like(f)
        _ranking_backward[(triton.cdiv(count, rows),)](
            *(grad.contiguous() for grad in grads), f, own, out, count, nodes, ctx.depth,
            ROWS=rows, NODES=triton.next_power_of_2(nodes), num_warps=4,
        )  # fmt: skip
        return out, None, None


def _rows(f: Tensor) -> int:
    """Return the number of conditionals per program."""
    return max(1, 1024 // int(triton.next_power_of_2(f.shape[-1])))
