"""The Triton kernels of the energy network, which `aem.nn.kernels.energy` launches."""

import triton
import triton.language as tl

from aem.nn.kernels.arithmetic import (
    activate,
    activate_for,
    activate_to,
    dot,
    dropped,
    kept,
    row_hash,
    times_dropped_slope,
    times_slope,
)


@triton.jit
def _waves(x, frequency_ptr, place, F, PADDED: tl.constexpr, ROUGH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sines and cosines of x at the frequencies of its column, with their amplitudes.

    `ROUGH` ones, by the GPU's own instructions, are right to more digits than bfloat16 has.
    """
    f = tl.arange(0, PADDED)
    omega = tl.load(
        frequency_ptr + place[:, None] * F + f[None, :], mask=(f < F)[None, :], other=0.0
    )
    amplitude = tl.rsqrt(tl.maximum(omega.to(tl.float32) * 0.3183098861837907, 1.0))
    phase = x[:, None] * omega
    if ROUGH or phase.dtype == tl.float64:
        # A high frequency leaves few digits of the phase after the turns are taken off.
        phase = (phase - tl.floor(phase * 0.15915494309189535) * 6.283185307179586).to(tl.float32)
    if ROUGH:
        sine = tl.inline_asm_elementwise(
            "sin.approx.f32 $0, $1;", "=r,r", [phase], dtype=tl.float32, is_pure=True, pack=1
        )
        cosine = tl.inline_asm_elementwise(
            "cos.approx.f32 $0, $1;", "=r,r", [phase], dtype=tl.float32, is_pure=True, pack=1
        )
        return amplitude * sine, amplitude * cosine
    return amplitude * tl.sin(phase), amplitude * tl.cos(phase)


@triton.jit(do_not_specialize=["M", "S", "PERIOD"])  # of scores and samples, ever other numbers
def energy_forward(  # type: ignore[no-untyped-def]
    x_ptr, frequency_ptr, projected_ptr, first_bias_ptr, value_ptr, matrix_ptr, bias_ptr, final_ptr,
    final_bias_ptr, multiplier_ptr, out_ptr, saved_ptr, seed_ptr,
    M, LAYER, S, PERIOD, F, threshold, scale,
    H: tl.constexpr, PADDED: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    PIECES: tl.constexpr, TANH: tl.constexpr, DROPOUT: tl.constexpr, SAVE: tl.constexpr,
    NATIVE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """f of a tile of nodes, through all layers; with SAVE also the inputs of the matrices."""
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
        ROUGH: tl.constexpr = NATIVE and tl.bfloat16 == KIND
        sines, cosines = _waves(x, frequency_ptr, conditional % PERIOD, F, PADDED, ROUGH)
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
        a = activate_to(h, KIND, TANH, NATIVE)
        if SAVE:
            tl.store(saved_here + 2 * k * LAYER + here, a)
        # In pieces of the inner layer: the product of one overlaps with the activation of another.
        for piece in tl.static_range(PIECES):
            units = piece * WIDTH + tl.arange(0, WIDTH)
            inner = matrix_ptr + 2 * k * STRIDE
            first = tl.load(inner + units[:, None] * H + columns[None, :])
            t = dot(a, tl.trans(first), tl.zeros((ROWS, WIDTH), tl.float32))
            bias = tl.load(bias_ptr + 2 * k * STRIDE + H * H + units).to(tl.float32)
            if DROPOUT:
                factors = tl.load(multiplier_ptr + k * H + units)
                if TANH:
                    t = activate_for(t + bias[None, :], KIND, TANH, NATIVE)
                    u = dropped(t, hashed, factors, threshold, scale).to(KIND)
                else:
                    # Scaled before the ReLU, which does not mind: one instruction with the bias.
                    t = kept(t * scale + (bias * scale)[None, :], hashed, factors, threshold)
                    u = activate_to(t, KIND, TANH, NATIVE)
            else:
                u = activate_to(t + bias[None, :], KIND, TANH, NATIVE)
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
def _turned(tile, TILES, BACKWARDS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Tiles in their order, or from the last to the first.

    A kernel goes against the order of the one before: what that wrote last is still in the cache.
    """
    if BACKWARDS:
        tile = TILES - 1 - tile
    return tile


@triton.jit
def energy_top(  # type: ignore[no-untyped-def]
    grad_ptr, final_ptr, last_ptr, out_ptr, part_ptr, M, TILES,
    H: tl.constexpr, ROWS: tl.constexpr, TANH: tl.constexpr, BACKWARDS: tl.constexpr,
):  # fmt: skip
    """The slopes behind the last block, and a part [2, H] of the final layer's gradient."""
    columns = tl.arange(0, H)
    local = tl.arange(0, ROWS)
    here = local[:, None] * H + columns[None, :]
    final = tl.load(final_ptr + columns)[None, :]
    total = tl.zeros((ROWS, H), tl.float32)
    bias = tl.zeros((ROWS,), tl.float32)
    size = tl.full((), ROWS * H, tl.int64)
    for turn in tl.range(tl.program_id(0), TILES, tl.num_programs(0)):
        tile = _turned(turn, TILES, BACKWARDS)
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
def _settled(total, NATIVE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a sum of products after waiting for it.

    Left running into the next round, it makes the assembler start every product on its own.
    """
    if NATIVE:
        total = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [total], dtype=tl.float32, is_pure=True, pack=1
        )
    return total


@triton.jit
def energy_backward(  # type: ignore[no-untyped-def]
    above_ptr, a_ptr, u_ptr, matrix_ptr, out_ptr, part_ptr, TILES, PART, scale,
    H: tl.constexpr, ROWS: tl.constexpr, TANH: tl.constexpr, DROPOUT: tl.constexpr,
    BACKWARDS: tl.constexpr, NATIVE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One residual block: from the slopes above it those below it, and its weights' gradients.

    Slopes lie as [H, ROWS], a unit a row: tensor cores take 64 rows at once, and there is room for few
    nodes. Biases' gradients are products with ones, as a sum across warps would cost more than all the
    rest; both share a sum, half of its columns each.
    """
    KIND: tl.constexpr = matrix_ptr.dtype.element_ty
    STRIDE: tl.constexpr = H * H + H  # a matrix and its bias
    program = tl.program_id(0)
    columns = tl.arange(0, H)
    here = tl.arange(0, ROWS)[:, None] * H + columns[None, :]
    square = columns[:, None] * H + columns[None, :]
    first = tl.trans(tl.load(matrix_ptr + square))
    second = tl.trans(tl.load(matrix_ptr + STRIDE + square))
    by_first = tl.zeros((H, H), tl.float32)
    by_second = tl.zeros((H, H), tl.float32)
    by_biases = tl.zeros((H, 16), tl.float32)
    left = tl.arange(0, 16)[None, :] < 8
    ones_left = tl.where(left, 1.0, tl.zeros((ROWS, 16), tl.float32)).to(KIND)
    ones_right = tl.where(left, 0.0, tl.full((ROWS, 16), 1.0, tl.float32)).to(KIND)
    size = tl.full((), ROWS * H, tl.int64)
    for turn in tl.range(program, TILES, tl.num_programs(0), num_stages=STAGES):
        base = _turned(turn, TILES, BACKWARDS) * size
        u = tl.load(u_ptr + base + here)
        a = tl.load(a_ptr + base + here)
        above = tl.load(above_ptr + base + here)
        outer = tl.trans(above)
        du = dot(second, outer, tl.zeros((H, ROWS), tl.float32))
        inner = times_dropped_slope(du, tl.trans(u), scale, TANH, DROPOUT).to(KIND)
        da = dot(first, inner, tl.zeros((H, ROWS), tl.float32))
        dh = outer.to(tl.float32) + times_slope(da, tl.trans(a), TANH)
        tl.store(out_ptr + base + here, tl.trans(dh.to(KIND)))
        by_second = _settled(dot(outer, u, by_second), NATIVE)
        by_first = _settled(dot(inner, a, by_first), NATIVE)
        by_biases = dot(outer, ones_left, by_biases)
        by_biases = _settled(dot(inner, ones_right, by_biases), NATIVE)
    mine = part_ptr + program.to(tl.int64) * PART
    tl.store(mine + square, by_first)
    tl.store(mine + H * H + columns, tl.sum(tl.where(left, 0.0, by_biases), 1) / 8)
    tl.store(mine + STRIDE + square, by_second)
    tl.store(mine + STRIDE + H * H + columns, tl.sum(tl.where(left, by_biases, 0.0), 1) / 8)


@triton.jit
def energy_inputs(  # type: ignore[no-untyped-def]
    x_ptr, frequency_ptr, slopes_ptr, projected_ptr, part_ptr, C, S, PERIOD, F, TILES,
    H: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr, BACKWARDS: tl.constexpr,
    NATIVE: tl.constexpr,
):  # fmt: skip
    """Gradients of what the first layer read: a conditional's context, the bias, embedded values."""
    ROUGH: tl.constexpr = NATIVE and tl.bfloat16 == slopes_ptr.dtype.element_ty
    program = tl.program_id(0)
    columns = tl.arange(0, H)
    bias = tl.zeros((TILE, H), tl.float32)
    linear = tl.zeros((TILE, H), tl.float32)
    if PADDED > 0:
        by_sine = tl.zeros((H, PADDED), tl.float32)
        by_cosine = tl.zeros((H, PADDED), tl.float32)
    for turn in tl.range(program, TILES, tl.num_programs(0)):
        tile = _turned(turn, TILES, BACKWARDS)
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
                sines, cosines = _waves(x, frequency_ptr, conditional % PERIOD, F, PADDED, ROUGH)
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
