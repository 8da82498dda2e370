"""Operations that several kernels share: products, activations, dropout by hashing."""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def dot(a, b, total):  # type: ignore[no-untyped-def]
    """total + a b; float32 operands as sums of three TF32 products, which keeps their digits."""
    return tl.dot(a, b, total, input_precision="tf32x3")


@triton.jit
def activate(h, TANH: tl.constexpr):  # type: ignore[no-untyped-def]
    """ReLU or tanh."""
    if TANH:
        return 2 * tl.sigmoid(2 * h) - 1
    return tl.maximum(h, 0.0)


@triton.jit
def activate_for(h, KIND: tl.constexpr, TANH: tl.constexpr, NATIVE: tl.constexpr):  # type: ignore[no-untyped-def]
    """ReLU or tanh to the precision of `KIND`; GPUs have an instruction for such a tanh."""
    if TANH and NATIVE and tl.bfloat16 == KIND:
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=r,r", [h], dtype=tl.float32, is_pure=True, pack=1
        )
    return activate(h, TANH)


@triton.jit
def activate_to(h, KIND: tl.constexpr, TANH: tl.constexpr, NATIVE: tl.constexpr):  # type: ignore[no-untyped-def]
    """ReLU or tanh, rounded to `KIND`; GPUs clamp and round in one instruction."""
    if not TANH and NATIVE and tl.bfloat16 == KIND:
        asm: tl.constexpr = "cvt.rn.relu.bf16x2.f32 $0, $2, $1;"
        return tl.inline_asm_elementwise(
            asm, "=r,r,r", [h], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    return activate_for(h, KIND, TANH, NATIVE).to(KIND)


@triton.jit
def times_slope(g, a, TANH: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradient before an activation, from that behind it and the activation's value `a`."""
    if TANH:
        wide = a.to(tl.float32)
        return g * (1 - wide * wide)
    return tl.where(a > 0, g, 0.0)


@triton.jit
def times_dropped_slope(  # type: ignore[no-untyped-def]
    g, u, scale, TANH: tl.constexpr, DROPOUT: tl.constexpr
):  # fmt: skip
    """The same through dropout as well; `u` is the scaled output of dropout."""
    if TANH:
        wide = u.to(tl.float32) / scale
        g = g * scale * (1 - wide * wide)
        if DROPOUT:
            g = tl.where(u != 0, g, 0.0)
        return g
    return tl.where(u > 0, g * scale, 0.0)


@triton.jit
def row_hash(rows, seed):  # type: ignore[no-untyped-def]
    """A 32-bit hash of (row, seed)."""
    h = rows.to(tl.uint32) * 0x9E3779B1 + seed.to(tl.uint32)
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def kept(a, hashed, multipliers, threshold):  # type: ignore[no-untyped-def]
    """Set dropped entries of `a` to zero, by a hash of (row, column, layer).

    Rows are hashed, columns have their `multipliers`, and an entry takes one product, whose upper bits
    are practically independent for different columns (multiplicative hashing).
    """
    lucky = hashed[:, None] * multipliers.to(tl.uint32)[None, :] >= threshold.to(tl.uint32)
    return tl.where(lucky, a, 0.0)


@triton.jit
def dropped(a, hashed, multipliers, threshold, scale):  # type: ignore[no-untyped-def]
    """Dropout: what is kept of an activation, scaled."""
    return kept(a * scale, hashed, multipliers, threshold)


@triton.jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    part_ptr, out_ptr, N, PARTS, SIZE: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    here = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = (here < N)[None, :]
    total = tl.zeros((ROWS, SIZE), tl.float32)
    for start in tl.range(0, PARTS, ROWS, loop_unroll_factor=4):
        part = start + tl.arange(0, ROWS)
        there = part_ptr + part[:, None].to(tl.int64) * N + here[None, :]
        total += tl.load(there, mask=(part < PARTS)[:, None] & inside, other=0.0)
    tl.store(out_ptr + here, tl.sum(total, 0), mask=here < N)


def sum_parts(parts: Tensor, out: Tensor | None = None) -> Tensor:
    """The sum over the first axis, in an order that never changes."""
    count, size = len(parts), parts[0].numel()
    out = parts.new_empty(parts.shape[1:]) if out is None else out
    _sum_kernel[(triton.cdiv(size, 128),)](parts, out, size, count, SIZE=128, ROWS=16, num_warps=4)
    return out


@cache
def multipliers(layers: int, columns: int, device: torch.device) -> Tensor:
    """An odd random number for each column of each layer; always the same ones."""
    generator = torch.Generator().manual_seed(columns)
    numbers = torch.randint(2**31, (layers, columns), generator=generator)
    return (2 * numbers + 1 - 2**31).to(torch.int32).to(device)
