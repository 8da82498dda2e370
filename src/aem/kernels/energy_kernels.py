"""The kernels of the energy network; `aem.kernels.energy` says how they work together."""

import triton
import triton.language as tl

from aem.kernels.arithmetic import (
    activate,
    dot,
    dropped,
    row_hash,
    times_dropped_slope,
    times_slope,
)


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


@triton.jit(do_not_specialize=["M", "S"])  # of scores and samples, ever other numbers
def energy_forward(  # type: ignore[no-untyped-def]
    x_ptr, frequency_ptr, projected_ptr, first_bias_ptr, value_ptr, matrix_ptr, bias_ptr, final_ptr,
    final_bias_ptr, multiplier_ptr, out_ptr, saved_ptr, seed_ptr,
    M, LAYER, S, PERIOD, F, threshold, scale,
    H: tl.constexpr, PADDED: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    PIECES: tl.constexpr, TANH: tl.constexpr, DROPOUT: tl.constexpr, SAVE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """f of a tile of nodes, through all layers; with SAVE also what the matrices read."""
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
def energy_top(  # type: ignore[no-untyped-def]
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
def energy_backward(  # type: ignore[no-untyped-def]
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
def energy_inputs(  # type: ignore[no-untyped-def]
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
