"""Linear layers of a residual network with all that surrounds them, one launch each.

Forward: product, bias, residual, activation, dropout. Backward: product, the activation's slope, the
residual. A third kernel takes the weight gradients of all layers of one shape at once.

Units are sorted by degree, so a masked matrix is block-triangular: for each tile of outputs the
products end (backward: start) where the mask does. Weights beyond the mask are zero already, and
their gradients are written as zero.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from aem.nn.kernels.arithmetic import activate, dot, dropped, row_hash, times_dropped_slope

FEW = 132  # tiles: below that, smaller ones keep more of a GPU busy


@dataclass(frozen=True)
class Tiles:
    """How a matrix product is cut for a kernel.

    Parameters
    ----------
    rows
        rows of a tile.
    columns
        columns of a tile.
    inner
        length of a step along the inner axis.
    warps
        warps per program.
    stages
        stages that the loop is pipelined in.
    """

    rows: int
    columns: int
    inner: int
    warps: int
    stages: int


LARGE = Tiles(64, 128, 64, 4, 4)
MEDIUM = Tiles(64, 64, 128, 4, 3)
SMALL = Tiles(32, 32, 128, 4, 3)


def unit(size: int) -> int:
    """Return how many numbers one load may take at once: a power of two up to 16.

    Parameters
    ----------
    size
        the number of units, which it divides.
    """
    return math.gcd(size, 16)


def tiles_for(rows: int, columns: int) -> Tiles:
    """Return the largest tiles that are not too few to keep a GPU busy.

    Parameters
    ----------
    rows
        rows of the product.
    columns
        its columns.
    """
    for tiles in (LARGE, MEDIUM):
        if triton.cdiv(rows, tiles.rows) * triton.cdiv(columns, tiles.columns) >= FEW:
            return tiles
    return SMALL


@triton.jit
def _layer_forward(  # type: ignore[no-untyped-def]
    x_ptr, weight_ptr, bias_ptr, end_ptr, sum_ptr, active_ptr, seed_ptr, multiplier_ptr,
    M, N_UNITS, K_UNITS, threshold, scale, N_UNIT: tl.constexpr, K_UNIT: tl.constexpr,
    ADD: tl.constexpr, SUM: tl.constexpr, ACTIVE: tl.constexpr, TANH: tl.constexpr,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
    STAGES: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """sum = [sum +] x Wᵀ + b; active = dropout(activation(sum)).

    EXACT for an x of more digits than the weights: what rounding leaves of it is multiplied as well.
    """
    N, K = N_UNITS * N_UNIT, K_UNITS * K_UNIT
    KIND: tl.constexpr = weight_ptr.dtype.element_ty
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, INNER)
    row_inside, column_inside = (rows < M)[:, None], (columns < N)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    end = tl.load(end_ptr + tl.program_id(0))
    for start in tl.range(0, end, INNER, num_stages=STAGES):
        k = start + inner
        known = k < K
        x = tl.load(
            x_ptr + rows[:, None] * K + k[None, :], mask=row_inside & known[None, :], other=0.0
        )
        w = tl.load(
            weight_ptr + columns[None, :].to(tl.int64) * K + k[:, None],
            mask=column_inside & known[:, None],
            other=0.0,
        )
        rounded = x.to(KIND)
        total = dot(rounded, w, total)
        if EXACT:
            total = dot((x - rounded.to(tl.float32)).to(KIND), w, total)
    total += tl.load(bias_ptr + columns, mask=columns < N, other=0.0)[None, :]
    here = rows[:, None].to(tl.int64) * N + columns[None, :]
    inside = row_inside & column_inside
    if ADD:
        total += tl.load(sum_ptr + here, mask=inside, other=0.0)
    if SUM:
        tl.store(sum_ptr + here, total, mask=inside)
    if ACTIVE:
        a = activate(total, TANH)
        if DROPOUT:
            hashed = row_hash(rows, tl.load(seed_ptr))
            multipliers = tl.load(multiplier_ptr + columns, mask=columns < N, other=1)
            a = dropped(a, hashed, multipliers, threshold, scale)
        tl.store(active_ptr + here, a.to(KIND), mask=inside)


@triton.jit
def _layer_backward(  # type: ignore[no-untyped-def]
    slopes_ptr, weight_ptr, start_ptr, gate_ptr, above_ptr, out_ptr, M, N_UNITS, K_UNITS, scale,
    N_UNIT: tl.constexpr, K_UNIT: tl.constexpr, ADD: tl.constexpr, TANH: tl.constexpr,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """out = [above +] (slopes W) · the activation's slope, told from its value `gate`."""
    N, K = N_UNITS * N_UNIT, K_UNITS * K_UNIT
    KIND: tl.constexpr = weight_ptr.dtype.element_ty
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, INNER)
    row_inside, column_inside = (rows < M)[:, None], (columns < N)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    # In whole steps: loads stay aligned.
    first = tl.load(start_ptr + tl.program_id(0)) // INNER * INNER
    for start in tl.range(first, K, INNER, num_stages=STAGES):
        k = start + inner
        known = k < K
        g = tl.load(
            slopes_ptr + rows[:, None].to(tl.int64) * K + k[None, :],
            mask=row_inside & known[None, :],
            other=0.0,
        ).to(KIND)
        w = tl.load(
            weight_ptr + k[:, None].to(tl.int64) * N + columns[None, :],
            mask=column_inside & known[:, None],
            other=0.0,
        )
        total = dot(g, w, total)
    here = rows[:, None].to(tl.int64) * N + columns[None, :]
    inside = row_inside & column_inside
    gate = tl.load(gate_ptr + here, mask=inside, other=0.0)
    total = times_dropped_slope(total, gate, scale, TANH, DROPOUT)
    if ADD:
        total += tl.load(above_ptr + here, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + here, total.to(KIND), mask=inside)


@triton.jit
def _layer_weights(  # type: ignore[no-untyped-def]
    slopes_ptr, input_ptr, out_degree_ptr, in_degree_ptr, grad_ptr, bias_ptr,
    M, N_UNITS, K_UNITS, SLOPES, INPUTS, LAYER, PART, PER_PART,
    N_UNIT: tl.constexpr, K_UNIT: tl.constexpr, STRICT: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, INNER: tl.constexpr, STAGES: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """slopesᵀ · inputs [N, K] and the slopes' sums, of one layer over one part of the rows."""
    N, K = N_UNITS * N_UNIT, K_UNITS * K_UNIT
    across = tl.cdiv(K, COLUMNS)
    tile, layer, part = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    out = (tile // across) * ROWS + tl.arange(0, ROWS)
    into = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)
    out_inside, into_inside = out < N, into < K
    out_degree = tl.load(out_degree_ptr + out, mask=out_inside, other=-1)
    in_degree = tl.load(in_degree_ptr + into, mask=into_inside, other=2**30)
    if STRICT:
        allowed = out_degree[:, None] > in_degree[None, :]
    else:
        allowed = out_degree[:, None] >= in_degree[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    bias = tl.zeros((ROWS,), tl.float32)
    leftmost = tile % across == 0
    first = part * PER_PART
    last = tl.minimum(first + PER_PART, M)
    if leftmost | (tl.max(allowed.to(tl.int32)) > 0):
        for start in tl.range(first, last, INNER, num_stages=STAGES):
            rows = start + tl.arange(0, INNER)
            known = (rows < last)[:, None]
            wide = rows[:, None].to(tl.int64)
            g = tl.load(
                slopes_ptr + layer * SLOPES + wide * N + out[None, :],
                mask=known & out_inside[None, :],
                other=0.0,
            )
            v = tl.load(
                input_ptr + layer * INPUTS + wide * K + into[None, :],
                mask=known & into_inside[None, :],
                other=0.0,
            ).to(KIND)
            total = dot(tl.trans(g.to(KIND)), v, total)
            if leftmost:
                bias += tl.sum(g.to(tl.float32), 0)
    base = layer * LAYER + part * PART
    tl.store(
        grad_ptr + base + out[:, None].to(tl.int64) * K + into[None, :],
        tl.where(allowed, total, 0.0),
        mask=out_inside[:, None] & into_inside[None, :],
    )
    if leftmost:
        tl.store(bias_ptr + base + out, bias, mask=out_inside)


def forward_layer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    ends: Tensor,
    tiles: Tiles,
    *,
    total: Tensor | None = None,
    add: bool = False,
    active: Tensor | None = None,
    tanh: bool = False,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    multipliers: Tensor | None = None,
) -> None:
    """Write `total` = [total +] x Wᵀ + b and `active`, its activation with dropout, where given."""
    (m, k), n = x.shape, len(weight)
    grid = (triton.cdiv(n, tiles.columns), triton.cdiv(m, tiles.rows))
    _layer_forward[grid](
        x, weight, bias, ends, bias if total is None else total,
        weight if active is None else active, bias if seed is None else seed,
        bias if multipliers is None else multipliers,
        m, n // unit(n), k // unit(k), int(dropout * 2**32), 1 / (1 - dropout),
        N_UNIT=unit(n), K_UNIT=unit(k), ADD=add, SUM=total is not None,
        ACTIVE=active is not None, TANH=tanh, DROPOUT=dropout > 0,
        ROWS=tiles.rows, COLUMNS=tiles.columns, INNER=tiles.inner, STAGES=tiles.stages,
        EXACT=x.dtype != weight.dtype, num_warps=tiles.warps,
    )  # fmt: skip


def backward_layer(
    slopes: Tensor,
    weight: Tensor,
    starts: Tensor,
    tiles: Tiles,
    *,
    gate: Tensor,
    out: Tensor,
    above: Tensor | None = None,
    tanh: bool = False,
    dropout: float = 0.0,
) -> None:
    """Write `out` = [above +] (slopes W) times the slope of the activation whose value is `gate`."""
    (m, k), n = slopes.shape, weight.shape[1]
    grid = (triton.cdiv(n, tiles.columns), triton.cdiv(m, tiles.rows))
    _layer_backward[grid](
        slopes, weight, starts, gate, gate if above is None else above, out,
        m, n // unit(n), k // unit(k), 1 / (1 - dropout), N_UNIT=unit(n), K_UNIT=unit(k),
        ADD=above is not None, TANH=tanh, DROPOUT=dropout > 0,
        ROWS=tiles.rows, COLUMNS=tiles.columns, INNER=tiles.inner, STAGES=tiles.stages,
        num_warps=tiles.warps,
    )  # fmt: skip


def weight_gradients(
    slopes: Tensor,
    inputs: Tensor,
    out_degrees: Tensor,
    in_degrees: Tensor,
    gradients: Tensor,
    biases: Tensor,
    *,
    strict: bool,
    kind: torch.dtype,
    parts: int = 1,
) -> None:
    """Gradients of L layers of K inputs and N outputs, summed over the rows in so many parts.

    They go to `gradients` [parts, L, N·K] and `biases` [parts, L, N], views of one piece of memory.
    """
    layers, m, n = slopes.shape
    k = inputs.shape[-1]
    tiles = tiles_for(n, k * layers * parts)
    side = (tiles.rows, tiles.columns)
    grid = (triton.cdiv(n, side[0]) * triton.cdiv(k, side[1]), layers, parts)
    assert layers * parts == 1 or gradients.stride() == biases.stride()
    _layer_weights[grid](
        slopes, inputs, out_degrees, in_degrees, gradients, biases, m, n // unit(n), k // unit(k),
        slopes.stride(0), inputs.stride(0), gradients.stride(1), gradients.stride(0),
        triton.cdiv(m, parts * tiles.inner) * tiles.inner,
        N_UNIT=unit(n), K_UNIT=unit(k), STRICT=strict, ROWS=side[0], COLUMNS=side[1],
        INNER=tiles.inner, STAGES=tiles.stages, KIND=_TYPES[kind], num_warps=tiles.warps,
    )  # fmt: skip


_TYPES = {torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
