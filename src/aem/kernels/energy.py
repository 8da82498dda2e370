"""The energy network as one kernel forward and one a residual block backward.

Forward, a tile of nodes passes through all layers without leaving the multiprocessor. What the
backward pass needs of it, the inputs of the matrices, is written out once, in the type they multiply;
their signs stand for the ReLU's and the dropout's masks, so no random number is drawn twice.

Backward, a program keeps one block's two matrices and the sums of their gradients on chip: each number
is read once, and the slopes inside the block are never written.

Nodes are constants (nothing is differentiated with respect to them), so the Fourier features are
computed where they are used and never stored.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aem.kernels.arithmetic import (
    activate,
    dot,
    dropped,
    multipliers,
    row_hash,
    sum_parts,
    times_dropped_slope,
    times_slope,
)
from aem.kernels.layers import LARGE, backward_layer, forward_layer, weight_gradients
from aem.kernels.packing import Memory, memory_of, split_like
from aem.nn.features import fourier_features

WHOLE = 256  # rows what is kept is rounded up to: whole tiles of any kernel
PROGRAMS = 132  # that share the nodes of a sum: one a multiprocessor
TILES = 2  # the fewest worth a program of their own
WIDEST = 128  # whose gradients fit on chip; wider networks go layer by layer
PARTS = 16  # that the sums of those are taken in


@dataclass(frozen=True)
class Launch:
    """How a kernel is started: rows a tile, warps a program, stages of its loop, programs at most."""

    rows: int
    warps: int
    stages: int = 1
    programs: int = PROGRAMS


@dataclass(frozen=True)
class Weights:
    """The network's: of its first layer for the bias and the value, its final layer's, its blocks'."""

    first_bias: Tensor
    value: Tensor
    final: Tensor
    final_bias: Tensor
    blocks: Memory


# Measured, not derived.
FORWARD = {32: Launch(128, 4, 2), 64: Launch(128, 8, 2), 128: Launch(128, 8, 2)}
SINGLE = {32: Launch(64, 4, 1), 64: Launch(64, 4, 1), 128: Launch(64, 4, 1)}  # in float32
PIECES = {32: 1, 64: 1, 128: 2}  # that the inner layer of a block is taken in, forward
BACKWARD = {32: Launch(64, 4, 3), 64: Launch(64, 4, 3), 128: Launch(32, 8, 3)}
TOP = Launch(32, 4, programs=4 * PROGRAMS)
INPUTS = Launch(32, 4, programs=4 * PROGRAMS)  # rows: conditionals


@triton.jit
def _waves(x, frequency_ptr, place, F, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sines and cosines of x at the frequencies of its column, with their amplitudes."""
    f = tl.arange(0, PADDED)
    omega = tl.load(
        frequency_ptr + place[:, None] * F + f[None, :], mask=(f < F)[None, :], other=0.0
    )
    amplitude = tl.rsqrt(tl.maximum(omega.to(tl.float32) * 0.3183098861837907, 1.0))
    phase = x[:, None] * omega
    if phase.dtype == tl.float64:
        # A high frequency leaves few digits of the phase after the turns are taken off.
        phase = (phase - tl.floor(phase * 0.15915494309189535) * 6.283185307179586).to(tl.float32)
    return amplitude * tl.sin(phase), amplitude * tl.cos(phase)


@triton.jit
def _energy_forward(  # type: ignore[no-untyped-def]
    x_ptr, frequency_ptr, projected_ptr, first_bias_ptr, value_ptr, matrix_ptr, bias_ptr, final_ptr,
    final_bias_ptr, multiplier_ptr, out_ptr, saved_ptr, seed_ptr,
    M, LAYER, S, PERIOD, F, threshold, scale,
    H: tl.constexpr, PADDED: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    PIECES: tl.constexpr, TANH: tl.constexpr, DROPOUT: tl.constexpr, SAVE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    KIND: tl.constexpr = matrix_ptr.dtype.element_ty
    STRIDE: tl.constexpr = H * H + H  # a matrix and its bias
    WIDTH: tl.constexpr = H // PIECES
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
    h += x.to(tl.float32)[:, None] * tl.load(value_ptr + columns * E).to(tl.float32)[None, :]
    h += tl.load(first_bias_ptr + columns).to(tl.float32)[None, :]
    if PADDED > 0:
        sines, cosines = _waves(x, frequency_ptr, conditional % PERIOD, F, PADDED)
        f = tl.arange(0, PADDED)
        weights = value_ptr + columns[None, :] * E + f[:, None]
        known = (f < F)[:, None]
        ws = tl.load(weights + 1, mask=known, other=0.0).to(KIND)
        wc = tl.load(weights + 1 + F, mask=known, other=0.0).to(KIND)
        h = dot(sines.to(KIND), ws, h)
        h = dot(cosines.to(KIND), wc, h)
    # Offsets within a tile are the same for all: the compiler folds them into the instructions.
    here = tl.arange(0, ROWS)[:, None] * H + columns[None, :]
    saved_here = saved_ptr + start.to(tl.int64) * H
    hashed = rows.to(tl.uint32)
    if DROPOUT:
        hashed = row_hash(rows, tl.load(seed_ptr))
    for k in tl.range(BLOCKS, num_stages=STAGES):
        a = activate(h, TANH).to(KIND)
        if SAVE:
            tl.store(saved_here + 2 * k * LAYER + here, a)
        # In pieces of the inner layer: the product of one overlaps with the activation of another.
        for piece in tl.static_range(PIECES):
            units = piece * WIDTH + tl.arange(0, WIDTH)
            inner = matrix_ptr + 2 * k * STRIDE
            first = tl.load(inner + units[:, None] * H + columns[None, :])
            t = dot(a, tl.trans(first), tl.zeros((ROWS, WIDTH), tl.float32))
            t += tl.load(bias_ptr + 2 * k * STRIDE + H * H + units).to(tl.float32)[None, :]
            u = activate(t, TANH)
            if DROPOUT:
                u = dropped(u, hashed, tl.load(multiplier_ptr + k * H + units), threshold, scale)
            u = u.to(KIND)
            if SAVE:
                local = tl.arange(0, ROWS)[:, None] * H + units[None, :]
                tl.store(saved_here + (2 * k + 1) * LAYER + local, u)
            second = tl.load(inner + STRIDE + columns[:, None] * H + units[None, :])
            h = dot(u, tl.trans(second), h)
        bias = tl.load(bias_ptr + (2 * k + 1) * STRIDE + H * H + columns).to(tl.float32)
        h += bias[None, :]
    a = activate(h, TANH)
    if SAVE:
        tl.store(saved_here + 2 * BLOCKS * LAYER + here, a.to(KIND))
    f_out = tl.sum(a * tl.load(final_ptr + columns).to(tl.float32)[None, :], 1)
    tl.store(out_ptr + rows, f_out + tl.load(final_bias_ptr).to(tl.float32), mask=inside)


@triton.jit
def _energy_top(  # type: ignore[no-untyped-def]
    grad_ptr, final_ptr, last_ptr, out_ptr, part_ptr, M, TILES,
    H: tl.constexpr, ROWS: tl.constexpr, TANH: tl.constexpr,
):  # fmt: skip
    """The slopes behind the last block, and a part [2, H] of the final layer's gradient."""
    columns = tl.arange(0, H)
    local = tl.arange(0, ROWS)
    here = local[:, None] * H + columns[None, :]
    final = tl.load(final_ptr + columns)[None, :]
    total = tl.zeros((ROWS, H), tl.float32)
    bias = tl.zeros((ROWS,), tl.float32)
    size = tl.full((), ROWS * H, tl.int64)
    for tile in tl.range(tl.program_id(0), TILES, tl.num_programs(0)):
        rows = tile * ROWS + local
        # Rows beyond the last have no slope, and so no part in anything below.
        grad = tl.load(grad_ptr + rows, mask=rows < M, other=0.0)
        last = tl.load(last_ptr + tile * size + here)
        slopes = times_slope(grad[:, None] * final, last, TANH)
        tl.store(out_ptr + tile * size + here, slopes.to(out_ptr.dtype.element_ty))
        total += grad[:, None] * last.to(tl.float32)
        bias += grad
    out = part_ptr + tl.program_id(0) * 2 * H + columns
    tl.store(out, tl.sum(total, 0))
    tl.store(out + H, tl.zeros((H,), tl.float32) + tl.sum(bias))


@triton.jit
def _energy_backward(  # type: ignore[no-untyped-def]
    above_ptr, a_ptr, u_ptr, matrix_ptr, out_ptr, part_ptr, TILES, PART, scale,
    H: tl.constexpr, ROWS: tl.constexpr, TANH: tl.constexpr, DROPOUT: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """One residual block: from the slopes above it those below it, and its weights' gradients.

    Biases' gradients are products with ones: a sum across warps would cost more than all the rest.
    """
    KIND: tl.constexpr = matrix_ptr.dtype.element_ty
    STRIDE: tl.constexpr = H * H + H  # a matrix and its bias
    program = tl.program_id(0)
    columns = tl.arange(0, H)
    here = tl.arange(0, ROWS)[:, None] * H + columns[None, :]
    square = columns[:, None] * H + columns[None, :]
    first = tl.load(matrix_ptr + square)
    second = tl.load(matrix_ptr + STRIDE + square)
    by_first = tl.zeros((H, H), tl.float32)
    by_second = tl.zeros((H, H), tl.float32)
    first_bias = tl.zeros((H, 16), tl.float32)
    second_bias = tl.zeros((H, 16), tl.float32)
    ones = tl.full((ROWS, 16), 1.0, KIND)
    size = tl.full((), ROWS * H, tl.int64)
    for tile in tl.range(program, TILES, tl.num_programs(0), num_stages=STAGES):
        base = tile * size
        u = tl.load(u_ptr + base + here)
        a = tl.load(a_ptr + base + here)
        outer = tl.load(above_ptr + base + here)
        du = dot(outer, second, tl.zeros((ROWS, H), tl.float32))
        inner = times_dropped_slope(du, u, scale, TANH, DROPOUT).to(KIND)
        da = dot(inner, first, tl.zeros((ROWS, H), tl.float32))
        dh = outer.to(tl.float32) + times_slope(da, a, TANH)
        tl.store(out_ptr + base + here, dh.to(KIND))
        by_second = dot(tl.trans(outer), u, by_second)
        by_first = dot(tl.trans(inner), a, by_first)
        second_bias = dot(tl.trans(outer), ones, second_bias)
        first_bias = dot(tl.trans(inner), ones, first_bias)
    mine = part_ptr + program.to(tl.int64) * PART
    tl.store(mine + square, by_first)
    tl.store(mine + H * H + columns, tl.sum(first_bias, 1) / 16)
    tl.store(mine + STRIDE + square, by_second)
    tl.store(mine + STRIDE + H * H + columns, tl.sum(second_bias, 1) / 16)


@triton.jit
def _energy_inputs(  # type: ignore[no-untyped-def]
    x_ptr, frequency_ptr, slopes_ptr, projected_ptr, part_ptr, C, S, PERIOD, F, TILES,
    H: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Gradients of what the first layer read: a conditional's context, the bias, embedded values."""
    program = tl.program_id(0)
    columns = tl.arange(0, H)
    bias = tl.zeros((TILE, H), tl.float32)
    linear = tl.zeros((TILE, H), tl.float32)
    if PADDED > 0:
        by_sine = tl.zeros((H, PADDED), tl.float32)
        by_cosine = tl.zeros((H, PADDED), tl.float32)
    for tile in tl.range(program, TILES, tl.num_programs(0)):
        conditional = tile * TILE + tl.arange(0, TILE)
        inside = conditional < C
        first = conditional.to(tl.int64) * S
        total = tl.zeros((TILE, H), tl.float32)
        for s in tl.range(0, S):
            x = tl.load(x_ptr + first + s, mask=inside, other=0.0)
            g = tl.load(
                slopes_ptr + (first + s)[:, None] * H + columns[None, :],
                mask=inside[:, None],
                other=0.0,
            )
            wide = g.to(tl.float32)
            total += wide
            linear += wide * x[:, None]
            if PADDED > 0:
                sines, cosines = _waves(x, frequency_ptr, conditional % PERIOD, F, PADDED)
                by_sine = dot(tl.trans(g), sines.to(g.dtype), by_sine)
                by_cosine = dot(tl.trans(g), cosines.to(g.dtype), by_cosine)
        bias += total
        tl.store(
            projected_ptr + conditional[:, None].to(tl.int64) * H + columns[None, :],
            total,
            mask=inside[:, None],
        )
    # A part is [2 + 2F, H]: the bias, the value, its sines, its cosines.
    out = part_ptr + program * (2 + 2 * F) * H + columns
    tl.store(out, tl.sum(bias, 0))
    tl.store(out + H, tl.sum(linear, 0))
    if PADDED > 0:
        f = tl.arange(0, PADDED)
        known = (f < F)[None, :]
        there = out[:, None] + (2 + f[None, :]) * H
        tl.store(there, by_sine, mask=known)
        tl.store(there + F * H, by_cosine, mask=known)


def _padded(frequencies: int) -> int:
    """A dot's inner length: at least 16, a power of two; zero for none."""
    return max(16, triton.next_power_of_2(frequencies)) if frequencies else 0


class FusedEnergy(torch.autograd.Function):
    """f at S nodes of each of C conditionals: x [C, S], projected [C, H] → [C, S].

    The blocks' parameters come in their order: W₁, b₁, W₂, b₂ of each.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        frequencies: Tensor,
        projected: Tensor,
        first_bias: Tensor,
        value: Tensor,
        final: Tensor,
        final_bias: Tensor,
        dropout: float,
        tanh: bool,
        kind: torch.dtype,
        *blocks: Tensor,
    ) -> Tensor:
        """All layers in one launch, unless they are wide."""
        hidden, count = projected.shape[-1], len(blocks) // 4
        x, projected = x.contiguous(), projected.contiguous()
        whole = triton.cdiv(x.numel(), WHOLE) * WHOLE
        save = any(ctx.needs_input_grad)
        memory = memory_of(blocks, kind)
        weights = Weights(first_bias, value, final, final_bias, memory)
        # Whole tiles: no store or load of them needs a mask.
        saved = memory.half.new_empty((2 * count + 1 if save else 0, whole, hidden))
        # Drawn on the device: a captured graph gets another one at every replay.
        seed = torch.randint(2**31 - 1, (1,), device=x.device) if dropout else saved
        through = _narrow_forward if hidden <= WIDEST else _wide_forward
        out = through(x, frequencies, projected, weights, saved, seed, dropout, tanh)
        if save:
            ctx.save_for_backward(x, frequencies, final, saved, *blocks)
            ctx.memory, ctx.dropout, ctx.tanh = memory, dropout, tanh
            ctx.projected_kind = projected.dtype
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Block by block from the top, then what the first layer read."""
        x, frequencies, final, saved, *blocks = ctx.saved_tensors
        memory: Memory = ctx.memory
        grad = grads[0].contiguous()
        (conditionals, nodes), (period, f) = x.shape, frequencies.shape
        hidden = saved.shape[-1]
        slopes = torch.empty_like(saved[-1])
        tiles = len(slopes) // TOP.rows
        top_parts = grad.new_empty((min(TOP.programs, tiles), 2, hidden))
        _energy_top[(len(top_parts),)](
            grad, final, saved[-1], slopes, top_parts, grad.numel(), tiles,
            H=hidden, ROWS=TOP.rows, TANH=ctx.tanh, num_warps=TOP.warps,
        )  # fmt: skip
        by_final = sum_parts(top_parts)
        through = _narrow_backward if hidden <= WIDEST else _wide_backward
        slopes = through(saved, slopes, memory, ctx.dropout, ctx.tanh)

        tiles = triton.cdiv(conditionals, INPUTS.rows)
        programs = min(INPUTS.programs, tiles)
        by_projected = grad.new_empty((conditionals, hidden), dtype=ctx.projected_kind)
        parts = grad.new_empty((programs, 2 + 2 * f, hidden))
        _energy_inputs[(programs,)](
            x, frequencies, slopes, by_projected, parts, conditionals, nodes, period, f, tiles,
            H=hidden, PADDED=_padded(f), TILE=INPUTS.rows, num_warps=INPUTS.warps,
        )  # fmt: skip
        by_input = sum_parts(parts)
        return (
            None,
            None,
            by_projected,
            by_input[0],
            by_input[1:].t(),
            by_final[0],
            by_final[1, :1],
            None,
            None,
            None,
            *split_like(memory.gradients, blocks),
        )


def _narrow_forward(
    x: Tensor,
    frequencies: Tensor,
    projected: Tensor,
    weights: Weights,
    saved: Tensor,
    seed: Tensor,
    dropout: float,
    tanh: bool,
) -> Tensor:
    """All blocks in one launch."""
    _, whole, hidden = saved.shape
    memory = weights.blocks
    kind = memory.half.dtype
    launch = (FORWARD if kind == torch.bfloat16 else SINGLE)[hidden]
    layer = hidden * hidden + hidden
    count = len(memory.half) // (2 * layer)
    out = torch.empty_like(x, dtype=torch.float32)
    _energy_forward[(whole // launch.rows,)](
        x, frequencies, projected, weights.first_bias, weights.value, memory.half, memory.weights,
        weights.final, weights.final_bias, multipliers(count, hidden, x.device), out, saved, seed,
        x.numel(), whole * hidden, x.shape[-1], *frequencies.shape,
        int(dropout * 2**32), 1 / (1 - dropout),
        H=hidden, PADDED=_padded(frequencies.shape[-1]), BLOCKS=count, ROWS=launch.rows,
        PIECES=PIECES[hidden], TANH=tanh, DROPOUT=dropout > 0, SAVE=len(saved) > 0,
        STAGES=launch.stages, num_warps=launch.warps,
    )  # fmt: skip
    return out


def _wide_forward(
    x: Tensor,
    frequencies: Tensor,
    projected: Tensor,
    weights: Weights,
    saved: Tensor,
    seed: Tensor,
    dropout: float,
    tanh: bool,
) -> Tensor:
    """A layer a launch, for networks too wide to keep on chip."""
    (_, whole, hidden), m = saved.shape, x.numel()
    kind, nodes = saved.dtype, x.shape[-1]
    memory = weights.blocks
    layers = memory.half.view(-1, hidden * hidden + hidden)
    biases = memory.weights.view_as(layers)[:, hidden**2 :]
    place = torch.arange(len(x), device=x.device) % len(frequencies)
    embedded = fourier_features(x, frequencies[place][:, None, :])
    h = torch.zeros((whole, hidden), device=x.device)
    by_value = embedded.to(kind) @ weights.value.to(kind).t()
    h[:m] = (by_value + (projected + weights.first_bias)[:, None, :]).view(m, hidden)
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
            a, first, biases[k], ends, LARGE, active=u, tanh=tanh, dropout=dropout, seed=seed,
            multipliers=factors[k // 2],
        )  # fmt: skip
        forward_layer(u, second, biases[k + 1], ends, LARGE, total=h, add=True, active=a, tanh=tanh)
    if len(saved):
        saved[-1] = a
    f: Tensor = a[:m].float() @ weights.final + weights.final_bias
    return f.view(-1, nodes)


def _narrow_backward(
    saved: Tensor, slopes: Tensor, memory: Memory, dropout: float, tanh: bool
) -> Tensor:
    """From the slopes behind all blocks to those below them; a block a launch."""
    layers, whole, hidden = saved.shape
    launch, layer = BACKWARD[hidden], hidden * hidden + hidden
    tiles = whole // launch.rows
    programs = min(launch.programs, triton.cdiv(tiles, TILES))
    parts = memory.gradients.new_empty((programs, layers - 1, layer))
    for k in reversed(range(layers // 2)):
        # In place: a tile of slopes is read by the program that writes it.
        _energy_backward[(programs,)](
            slopes, saved[2 * k], saved[2 * k + 1], memory.half[2 * k * layer :], slopes,
            parts[:, 2 * k], tiles, parts.stride(0), 1 / (1 - dropout),
            H=hidden, ROWS=launch.rows, TANH=tanh, DROPOUT=dropout > 0, STAGES=launch.stages,
            num_warps=launch.warps,
        )  # fmt: skip
    sum_parts(parts, memory.gradients)
    return slopes


def _wide_backward(
    saved: Tensor, slopes: Tensor, memory: Memory, dropout: float, tanh: bool
) -> Tensor:
    """The same, a layer a launch."""
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


@torch.no_grad()
def energy_in_single(
    x: Tensor,
    frequencies: Tensor,
    projected: Tensor,
    first_bias: Tensor,
    value: Tensor,
    final: Tensor,
    final_bias: Tensor,
    tanh: bool,
    *blocks: Tensor,
) -> Tensor:
    """f at S nodes of each of C conditionals, with float32 arithmetic but phases of x's own precision.

    For scores and samples: no dropout, nothing kept, and a row's number does not depend on the rows
    around it.
    """
    x, projected = x.contiguous(), projected.contiguous()
    memory = memory_of(blocks, torch.float32)
    whole = triton.cdiv(x.numel(), WHOLE) * WHOLE
    nothing = memory.half.new_empty((0, whole, projected.shape[-1]))
    weights = Weights(first_bias, value, final, final_bias, memory)
    return _narrow_forward(x, frequencies, projected, weights, nothing, nothing, 0.0, tanh)
