"""The energy network as one kernel forward and two backward, with its activations on chip.

A tile of nodes passes through all layers without leaving the multiprocessor. What the backward pass
needs of it, the inputs of the matrices, is written out once, in the type they multiply; their signs
stand for the ReLU's and the dropout's masks, so no random number is drawn twice. Weight gradients are
sums over all nodes: a second kernel takes them matrix by matrix, in as many parts as keep the GPU busy.

Nodes are constants (nothing is differentiated with respect to them), so the Fourier features are
computed where they are used and never stored.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_PARTS = 32  # that a sum over all nodes is taken in
PART_ROWS = 512  # the fewest worth a part of their own
WHOLE = 256  # rows what is kept is rounded up to: whole tiles of any kernel


@dataclass(frozen=True)
class Launch:
    """How a kernel is started: rows a tile, warps a program, stages a loop is pipelined in."""

    rows: int
    warps: int
    stages: int


# Measured, not derived; wider layers leave room for fewer rows and no second stage.
FORWARD = {
    32: Launch(128, 4, 2),
    64: Launch(128, 8, 2),
    128: Launch(128, 8, 2),
    256: Launch(64, 8, 1),
}
BACKWARD = dict(FORWARD)
WEIGHTS = Launch(64, 8, 3)


@triton.jit
def _dot(a, b, total):  # type: ignore[no-untyped-def]
    return tl.dot(a, b, total, input_precision="ieee")


@triton.jit
def _random_bits(row_hash, column, layer):  # type: ignore[no-untyped-def]
    """A 32-bit hash of (row, column, layer): multiply-xorshift rounds, as in murmur's finaliser."""
    c = (column + layer * 0x10001).to(tl.uint32) * 0x9E3779B1
    h = row_hash[:, None] ^ (c ^ (c >> 15))[None, :]
    h *= 0x85EBCA6B
    h ^= h >> 13
    h *= 0xC2B2AE35
    return h ^ (h >> 16)


@triton.jit
def _row_hash(rows, seed):  # type: ignore[no-untyped-def]
    h = rows.to(tl.uint32) * 0x9E3779B1 + seed.to(tl.uint32)
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def _activate(h, TANH: tl.constexpr):  # type: ignore[no-untyped-def]
    if TANH:
        return 2 * tl.sigmoid(2 * h) - 1
    return tl.maximum(h, 0.0)


@triton.jit
def _slope(a, TANH: tl.constexpr):  # type: ignore[no-untyped-def]
    """The activation's derivative, from its value."""
    if TANH:
        return 1 - a * a
    return (a > 0).to(tl.float32)


@triton.jit
def _waves(x, frequency_ptr, place, F, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sines and cosines of x at the frequencies of its column, with their amplitudes."""
    f = tl.arange(0, PADDED)
    omega = tl.load(
        frequency_ptr + place[:, None] * F + f[None, :], mask=(f < F)[None, :], other=0.0
    )
    amplitude = tl.rsqrt(tl.maximum(omega * 0.3183098861837907, 1.0))
    phase = x[:, None] * omega
    return amplitude * tl.sin(phase), amplitude * tl.cos(phase)


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    x_ptr, frequency_ptr, projected_ptr, value_ptr, matrix_ptr, bias_ptr, final_ptr, final_bias_ptr,
    out_ptr, saved_ptr, seed_ptr, M, LAYER, S, PERIOD, F, threshold, scale,
    H: tl.constexpr, PADDED: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    TANH: tl.constexpr, DROPOUT: tl.constexpr, SAVE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    KIND: tl.constexpr = matrix_ptr.dtype.element_ty
    start = tl.program_id(0) * ROWS
    rows = start + tl.arange(0, ROWS)
    inside = rows < M
    columns = tl.arange(0, H)
    conditional = rows // S
    x = tl.load(x_ptr + rows, mask=inside, other=0.0)
    h = tl.load(
        projected_ptr + conditional[:, None] * H + columns[None, :], mask=inside[:, None], other=0.0
    ).to(tl.float32)
    E = 1 + 2 * F
    h += x[:, None] * tl.load(value_ptr + columns * E)[None, :]
    if PADDED > 0:
        sines, cosines = _waves(x, frequency_ptr, conditional % PERIOD, F, PADDED)
        f = tl.arange(0, PADDED)
        weights = value_ptr + columns[None, :] * E + f[:, None]
        known = (f < F)[:, None]
        ws = tl.load(weights + 1, mask=known, other=0.0).to(KIND)
        wc = tl.load(weights + 1 + F, mask=known, other=0.0).to(KIND)
        h = _dot(sines.to(KIND), ws, h)
        h = _dot(cosines.to(KIND), wc, h)
    # Offsets within a tile are the same for all: the compiler folds them into the instructions.
    here = tl.arange(0, ROWS)[:, None] * H + columns[None, :]
    square = columns[:, None] * H + columns[None, :]
    saved_here = saved_ptr + start.to(tl.int64) * H
    row_hash = rows.to(tl.uint32)
    if DROPOUT:
        row_hash = _row_hash(rows, tl.load(seed_ptr))
    for k in tl.range(BLOCKS, num_stages=STAGES):
        first = tl.load(matrix_ptr + 2 * k * H * H + square)
        second = tl.load(matrix_ptr + (2 * k + 1) * H * H + square)
        a = _activate(h, TANH).to(KIND)
        t = _dot(a, first, tl.zeros((ROWS, H), tl.float32))
        t += tl.load(bias_ptr + 2 * k * H + columns)[None, :]
        u = _activate(t, TANH)
        if DROPOUT:
            kept = _random_bits(row_hash, columns, k) >= threshold
            u = tl.where(kept, u * scale, 0.0)
        u = u.to(KIND)
        if SAVE:
            tl.store(saved_here + 2 * k * LAYER + here, a)
            tl.store(saved_here + (2 * k + 1) * LAYER + here, u)
        h = _dot(u, second, h)
        h += tl.load(bias_ptr + (2 * k + 1) * H + columns)[None, :]
    a = _activate(h, TANH)
    if SAVE:
        tl.store(saved_here + 2 * BLOCKS * LAYER + here, a.to(KIND))
    f_out = tl.sum(a * tl.load(final_ptr + columns)[None, :], 1) + tl.load(final_bias_ptr)
    tl.store(out_ptr + rows, f_out, mask=inside)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    grad_ptr, saved_ptr, matrix_ptr, final_ptr, slopes_ptr, final_part_ptr, M, LAYER, scale,
    H: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    TANH: tl.constexpr, DROPOUT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    KIND: tl.constexpr = matrix_ptr.dtype.element_ty
    start = tl.program_id(0) * ROWS
    rows = start + tl.arange(0, ROWS)
    columns = tl.arange(0, H)
    here = tl.arange(0, ROWS)[:, None] * H + columns[None, :]
    square = columns[:, None] * H + columns[None, :]
    saved_here = saved_ptr + start.to(tl.int64) * H
    slopes_here = slopes_ptr + start.to(tl.int64) * H
    # Rows beyond the last have no slope, and so no part in anything below.
    grad = tl.load(grad_ptr + rows, mask=rows < M, other=0.0)
    a = tl.load(saved_here + 2 * BLOCKS * LAYER + here).to(tl.float32)
    tl.store(final_part_ptr + tl.program_id(0) * H + columns, tl.sum(grad[:, None] * a, 0))
    dh = grad[:, None] * tl.load(final_ptr + columns)[None, :] * _slope(a, TANH)
    for i in tl.range(BLOCKS, num_stages=STAGES):
        k = BLOCKS - 1 - i
        second = tl.load(matrix_ptr + (2 * k + 1) * H * H + square)
        first = tl.load(matrix_ptr + 2 * k * H * H + square)
        u = tl.load(saved_here + (2 * k + 1) * LAYER + here).to(tl.float32)
        outer = dh.to(KIND)
        tl.store(slopes_here + (2 * k + 1) * LAYER + here, outer)
        du = _dot(outer, second, tl.zeros((ROWS, H), tl.float32))
        if DROPOUT:
            dt = tl.where(u != 0, du * scale * _slope(u / scale, TANH), 0.0)
        else:
            dt = du * _slope(u, TANH)
        inner = dt.to(KIND)
        tl.store(slopes_here + 2 * k * LAYER + here, inner)
        da = _dot(inner, first, tl.zeros((ROWS, H), tl.float32))
        a = tl.load(saved_here + 2 * k * LAYER + here).to(tl.float32)
        dh += da * _slope(a, TANH)
    tl.store(slopes_here + 2 * BLOCKS * LAYER + here, dh.to(KIND))


@triton.jit
def _weights_kernel(  # type: ignore[no-untyped-def]
    slopes_ptr, saved_ptr, matrix_part_ptr, bias_part_ptr, LAYER,
    H: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """slopesᵀ · inputs and the slopes' sums, of one matrix over one part of the nodes."""
    layer, part, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    layers, parts = tl.num_programs(0), tl.num_programs(1)
    out = (tile // (H // TILE)) * TILE + tl.arange(0, TILE)
    into = (tile % (H // TILE)) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    bias = tl.zeros((TILE,), tl.float32)
    base = layer.to(tl.int64) * LAYER
    local = tl.arange(0, ROWS)[:, None] * H
    for step in tl.range(STEPS, num_stages=STAGES):
        # Parts take turns; the last turn may find nothing left.
        first = (step * parts + part).to(tl.int64) * ROWS * H
        there = first < LAYER
        g = tl.load(slopes_ptr + base + first + local + out[None, :], mask=there, other=0.0)
        v = tl.load(saved_ptr + base + first + local + into[None, :], mask=there, other=0.0)
        total = _dot(tl.trans(g), v, total)
        bias += tl.sum(g.to(tl.float32), 0)
    place = part * layers + layer
    tl.store(matrix_part_ptr + place * H * H + out[:, None] * H + into[None, :], total)
    if tile % (H // TILE) == 0:
        tl.store(bias_part_ptr + place * H + out, bias)


@triton.jit
def _value_kernel(  # type: ignore[no-untyped-def]
    x_ptr, frequency_ptr, slopes_ptr, part_ptr, M, S, PERIOD, F,
    H: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """The same for the matrix that reads the embedded value: [H, 1 + 2F]."""
    part = tl.program_id(0)
    columns = tl.arange(0, H)
    linear = tl.zeros((H,), tl.float32)
    if PADDED > 0:
        by_sine = tl.zeros((H, PADDED), tl.float32)
        by_cosine = tl.zeros((H, PADDED), tl.float32)
    for step in range(STEPS):
        rows = (part * STEPS + step) * ROWS + tl.arange(0, ROWS)
        inside = rows < M
        x = tl.load(x_ptr + rows, mask=inside, other=0.0)
        g = tl.load(
            slopes_ptr + rows[:, None] * H + columns[None, :], mask=inside[:, None], other=0.0
        )
        linear += tl.sum(g.to(tl.float32) * x[:, None], 0)
        if PADDED > 0:
            sines, cosines = _waves(x, frequency_ptr, (rows // S) % PERIOD, F, PADDED)
            by_sine = _dot(tl.trans(g), sines.to(g.dtype), by_sine)
            by_cosine = _dot(tl.trans(g), cosines.to(g.dtype), by_cosine)
    E = 1 + 2 * F
    out = part_ptr + part * H * E + columns * E
    tl.store(out, linear)
    if PADDED > 0:
        f = tl.arange(0, PADDED)
        known = (f < F)[None, :]
        tl.store(out[:, None] + 1 + f[None, :], by_sine, mask=known)
        tl.store(out[:, None] + 1 + F + f[None, :], by_cosine, mask=known)


def _padded(frequencies: int) -> int:
    """A dot's inner length: at least 16, a power of two; zero for none."""
    return max(16, triton.next_power_of_2(frequencies)) if frequencies else 0


class FusedEnergy(torch.autograd.Function):
    """f at S nodes of each of C conditionals: x [C, S], projected [C, H] → [C, S]."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        frequencies: Tensor,
        projected: Tensor,
        value: Tensor,
        matrices: Tensor,
        biases: Tensor,
        final: Tensor,
        final_bias: Tensor,
        dropout: float,
        tanh: bool,
        kind: torch.dtype,
    ) -> Tensor:
        """Everything in one launch."""
        nodes = x.shape[-1]
        hidden, blocks = projected.shape[-1], len(matrices) // 2
        x, projected = x.contiguous(), projected.contiguous()
        m, f = x.numel(), frequencies.shape[-1]
        launch, whole = FORWARD[hidden], triton.cdiv(m, WHOLE) * WHOLE
        save = any(ctx.needs_input_grad)
        out = torch.empty_like(x, dtype=torch.float32)
        half = matrices.to(kind)
        # Whole tiles: no store or load of them needs a mask.
        saved = half.new_empty((2 * blocks + 1, whole, hidden)) if save else half
        # Drawn on the device: a captured graph gets another one at every replay.
        seed = torch.randint(2**31 - 1, (1,), device=x.device) if dropout else half
        settings = (nodes, len(frequencies), f)
        _forward_kernel[(whole // launch.rows,)](
            x, frequencies, projected, value, half.transpose(-1, -2).contiguous(), biases,
            final, final_bias, out, saved, seed, m, whole * hidden,
            *settings, int(dropout * 2**32), 1 / (1 - dropout),
            H=hidden, PADDED=_padded(f), BLOCKS=blocks, ROWS=launch.rows, TANH=tanh,
            DROPOUT=dropout > 0, SAVE=save, STAGES=launch.stages, num_warps=launch.warps,
        )  # fmt: skip
        ctx.save_for_backward(x, frequencies, half.contiguous(), final, saved)
        ctx.settings = settings
        ctx.dropout, ctx.tanh = dropout, tanh
        ctx.kinds = (projected.dtype, matrices.dtype)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Slopes at every matrix's output in one launch, weight gradients in two."""
        x, frequencies, half, final, saved = ctx.saved_tensors
        grad = grads[0].contiguous()
        nodes, period, f = ctx.settings
        m, layers, hidden = x.numel(), len(half), half.shape[-1]
        launch, whole = BACKWARD[hidden], saved.shape[1]
        tiles = whole // launch.rows
        slopes = torch.empty_like(saved)
        final_parts = grad.new_empty((tiles, hidden))
        _backward_kernel[(tiles,)](
            grad, saved, half, final, slopes, final_parts, m, whole * hidden,
            1 / (1 - ctx.dropout), H=hidden, BLOCKS=layers // 2, ROWS=launch.rows, TANH=ctx.tanh,
            DROPOUT=ctx.dropout > 0, STAGES=launch.stages, num_warps=launch.warps,
        )  # fmt: skip
        parts = min(MOST_PARTS, triton.cdiv(m, PART_ROWS))
        tile = min(hidden, 128)
        matrix_parts = grad.new_empty((parts, layers, hidden, hidden))
        bias_parts = grad.new_empty((parts, layers, hidden))
        if layers:
            _weights_kernel[(layers, parts, (hidden // tile) ** 2)](
                slopes, saved, matrix_parts, bias_parts, whole * hidden,
                H=hidden, TILE=tile, ROWS=WEIGHTS.rows,
                STEPS=triton.cdiv(whole, WEIGHTS.rows * parts),
                STAGES=WEIGHTS.stages, num_warps=WEIGHTS.warps,
            )  # fmt: skip
        value_parts = grad.new_empty((4 * parts, hidden, 1 + 2 * f))
        _value_kernel[(4 * parts,)](
            x, frequencies, slopes[-1], value_parts, m, nodes, period, f,
            H=hidden, PADDED=_padded(f), ROWS=64, STEPS=triton.cdiv(m, 256 * parts),
            num_warps=4, num_stages=2,
        )  # fmt: skip
        projected_kind, matrix_kind = ctx.kinds
        by_conditional = slopes[-1, :m].view(-1, nodes, hidden).sum(1, dtype=torch.float32)
        return (
            None,
            None,
            by_conditional.to(projected_kind),
            value_parts.sum(0),
            matrix_parts.sum(0).to(matrix_kind),
            bias_parts.sum(0),
            final_parts.sum(0),
            grad.sum().view(1),
            None,
            None,
            None,
        )


def dropout_mask(rows: int, hidden: int, layer: int, dropout: float, seed: int) -> Tensor:
    """The kernel's mask of one layer, computed by PyTorch: true where a unit is kept. For tests."""
    low = 0xFFFFFFFF

    def mul(h: Tensor, factor: int) -> Tensor:
        # Products of 32-bit numbers do not fit 63 bits: in two halves.
        return (h * (factor & 0xFFFF) + (((h * (factor >> 16)) & 0xFFFF) << 16)) & low

    r = (mul(torch.arange(rows), 0x9E3779B1) + seed) & low
    r = mul(r ^ (r >> 16), 0x7FEB352D)
    r = mul(r ^ (r >> 15), 0x846CA68B)
    r = r ^ (r >> 16)
    c = mul(torch.arange(hidden) + layer * 0x10001, 0x9E3779B1)
    h = mul(r[:, None] ^ (c ^ (c >> 15))[None, :], 0x85EBCA6B)
    h = mul(h ^ (h >> 13), 0xC2B2AE35)
    return (h ^ (h >> 16)) >= int(dropout * 2**32)
