"""Gaussian mixtures on a GPU: log density, stratified draws and the stratum of the data in one kernel.

One launch does for a training step what takes PyTorch some eighty: the density of the data, one draw
of each proposal in each of S strata, and the stratum the data point itself belongs to, whose draw it
replaces (`aem.conditionals.estimates` says why). Only the density has a gradient.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

CONDITIONALS = 4  # a program


@triton.jit
def _ndtri(p):  # type: ignore[no-untyped-def]
    """The normal quantile in single precision: Wichura's algorithm AS 241 (PPND7)."""
    q = p - 0.5
    r = 0.180625 - q * q
    centre = (
        q
        * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179)
        / (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0)
    )
    s = tl.sqrt(-tl.log(tl.minimum(p, 1 - p)))
    c = s - 1.6
    near = (((0.17023821103 * c + 1.3067284816) * c + 2.7568153900) * c + 1.4234372777) / (
        (0.12021132975 * c + 0.73700164250) * c + 1.0
    )
    e = s - 5.0
    far = (((0.017337203997 * e + 0.42868294337) * e + 3.0812263860) * e + 6.6579051150) / (
        (0.012258202635 * e + 0.24197894225) * e + 1.0
    )
    tail = tl.where(s <= 5.0, near, far)
    return tl.where(tl.abs(q) <= 0.425, centre, tl.where(q < 0, -tail, tail))


@triton.jit
def _mixture(  # type: ignore[no-untyped-def]
    x_ptr, logits_ptr, locs_ptr, scales_ptr, logit_step, loc_step, scale_step,
    rows, inside, K, PADDED: tl.constexpr
):  # fmt: skip
    """Weights, locations and scales [C, K], standardised data and log joint densities."""
    k = tl.arange(0, PADDED)
    known = inside[:, None] & (k < K)[None, :]
    row, column = rows[:, None], k[None, :]
    logits = tl.load(logits_ptr + row * logit_step + column, mask=known, other=-float("inf"))
    logits = tl.where(inside[:, None], logits, 0.0)
    top = tl.max(logits, 1)
    raw = tl.exp(logits - top[:, None])
    total = tl.sum(raw, 1)
    log_weights = logits - top[:, None] - tl.log(total)[:, None]
    locs = tl.load(locs_ptr + row * loc_step + column, mask=known, other=0.0)
    scales = tl.load(scales_ptr + row * scale_step + column, mask=known, other=1.0)
    x = tl.load(x_ptr + rows, mask=inside, other=0.0)
    z = (x[:, None] - locs) / scales
    joint = log_weights - tl.log(scales) - 0.9189385332046727 - 0.5 * z * z
    highest = tl.max(joint, 1)
    log_q = highest + tl.log(tl.sum(tl.exp(joint - highest[:, None]), 1))
    return raw / total[:, None], locs, scales, x, z, joint, log_q, top + tl.log(total)


@triton.jit
def _transported(  # type: ignore[no-untyped-def]
    u, logits_ptr, locs_ptr, scales_ptr, logit_step, loc_step, scale_step, log_total, whole,
    rows, inside, K, ROWS: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Uniforms to draws: the component whose share of [0, 1) holds u, the quantile of the rest.

    One component after the other: those whose share lies below u are passed over.
    """
    end = tl.zeros((ROWS, POINTS), tl.float32)
    weight, loc, scale = end, end, end
    so_far = tl.zeros((ROWS,), tl.float32)
    for component in range(K):
        logit = tl.load(logits_ptr + rows * logit_step + component, mask=inside, other=0.0)
        share = tl.exp(logit - log_total) / whole
        here = u >= so_far[:, None]
        so_far += share
        at = rows * loc_step + component
        end = tl.where(here, so_far[:, None], end)
        weight = tl.where(here, share[:, None], weight)
        loc = tl.where(here, tl.load(locs_ptr + at, mask=inside, other=0.0)[:, None], loc)
        at = rows * scale_step + component
        scale = tl.where(here, tl.load(scales_ptr + at, mask=inside, other=1.0)[:, None], scale)
    v = 1 - (end - u) / tl.maximum(weight, 5.96e-8)
    v = tl.minimum(tl.maximum(v, 5.96e-8), 1 - 5.96e-8)
    return loc + scale * _ndtri(v)


@triton.jit
def _log_total(  # type: ignore[no-untyped-def]
    logits_ptr, logit_step, rows, inside, K, PADDED: tl.constexpr
):  # fmt: skip
    """The log-sum-exp of the logits, which normalises them."""
    k = tl.arange(0, PADDED)
    known = inside[:, None] & (k < K)[None, :]
    at = logits_ptr + rows[:, None] * logit_step + k[None, :]
    logits = tl.where(inside[:, None], tl.load(at, mask=known, other=-float("inf")), 0.0)
    top = tl.max(logits, 1)
    return top + tl.log(tl.sum(tl.exp(logits - top[:, None]), 1))


@triton.jit
def _places(N, S, ROWS: tl.constexpr, POINTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The mixtures of a program, which of them exist, and the addresses of their points."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    point = tl.arange(0, POINTS)
    inside = rows < N
    return rows, inside, rows[:, None] * S + point[None, :], inside[:, None] & (point < S)[None, :]


@triton.jit(do_not_specialize=["N", "S"])
def _mixture_transport(  # type: ignore[no-untyped-def]
    u_ptr, logits_ptr, locs_ptr, scales_ptr, out_ptr, logit_step, loc_step, scale_step, N, K, S,
    PADDED: tl.constexpr, POINTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows, inside, there, known = _places(N, S, ROWS, POINTS)
    u = tl.load(u_ptr + there, mask=known, other=0.5)
    log_total = _log_total(logits_ptr, logit_step, rows, inside, K, PADDED)
    y = _transported(
        u, logits_ptr, locs_ptr, scales_ptr, logit_step, loc_step, scale_step, log_total,
        tl.full((ROWS,), 1.0, tl.float32), rows, inside, K, ROWS, POINTS,
    )  # fmt: skip
    tl.store(out_ptr + there, y, mask=known)


@triton.jit(do_not_specialize=["N", "S"])
def _mixture_log_prob(  # type: ignore[no-untyped-def]
    x_ptr, logits_ptr, locs_ptr, scales_ptr, out_ptr, logit_step, loc_step, scale_step, N, K, S,
    PADDED: tl.constexpr, POINTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows, inside, there, known = _places(N, S, ROWS, POINTS)
    x = tl.load(x_ptr + there, mask=known, other=0.0)
    log_total = _log_total(logits_ptr, logit_step, rows, inside, K, PADDED)
    highest = tl.full((ROWS, POINTS), -1e30, tl.float32)
    total = tl.zeros((ROWS, POINTS), tl.float32)
    for component in range(K):
        logit = tl.load(logits_ptr + rows * logit_step + component, mask=inside, other=0.0)
        loc = tl.load(locs_ptr + rows * loc_step + component, mask=inside, other=0.0)
        scale = tl.load(scales_ptr + rows * scale_step + component, mask=inside, other=1.0)
        z = (x - loc[:, None]) / scale[:, None]
        constant = logit - log_total - tl.log(scale) - 0.9189385332046727
        joint = constant[:, None] - 0.5 * z * z
        # The sum of exponentials so far, relative to the largest so far.
        higher = tl.maximum(highest, joint)
        total = total * tl.exp(highest - higher) + tl.exp(joint - higher)
        highest = higher
    tl.store(out_ptr + there, highest + tl.log(tl.maximum(total, 1e-38)), mask=known)


@triton.jit
def _mixture_forward(  # type: ignore[no-untyped-def]
    x_ptr, logits_ptr, locs_ptr, scales_ptr, seed_ptr, log_q_ptr, points_ptr, own_ptr,
    logit_step, loc_step, scale_step, N, K, S,
    PADDED: tl.constexpr, STRATA: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < N
    weights, locs, scales, x, z, joint, log_q, log_total = _mixture(
        x_ptr, logits_ptr, locs_ptr, scales_ptr, logit_step, loc_step, scale_step,
        rows, inside, K, PADDED,
    )  # fmt: skip
    tl.store(log_q_ptr + rows, log_q, mask=inside)
    seed = tl.load(seed_ptr)
    k = tl.arange(0, PADDED)
    ends = tl.cumsum(weights, 1)
    whole = tl.sum(weights, 1)
    ends = ends / whole[:, None]

    # The component the data point came from, drawn by responsibility, and its place in that share.
    shares = tl.cumsum(tl.exp(joint - log_q[:, None]), 1)
    drawn = tl.rand(seed, N * STRATA + rows)
    component = tl.minimum(tl.sum((shares <= drawn[:, None]).to(tl.int32), 1), K - 1)
    chosen = k[None, :] == component[:, None]
    below = ends - weights + weights * 0.5 * (1 + tl.erf(z * 0.7071067811865476))
    position = tl.sum(tl.where(chosen, below, 0.0), 1)
    own = tl.minimum(tl.maximum((position * S).to(tl.int32), 0), S - 1)
    tl.store(own_ptr + rows, own.to(tl.int64), mask=inside)

    s = tl.arange(0, STRATA)
    noise = tl.rand(seed, rows[:, None] * STRATA + s[None, :])
    u = tl.minimum((s[None, :] + noise) / S, 1 - 5.96e-8)
    y = _transported(
        u, logits_ptr, locs_ptr, scales_ptr, logit_step, loc_step, scale_step, log_total, whole,
        rows, inside, K, ROWS, STRATA,
    )  # fmt: skip
    y = tl.where(s[None, :] == own[:, None], x[:, None], y)
    tl.store(
        points_ptr + rows[:, None] * S + s[None, :], y, mask=inside[:, None] & (s < S)[None, :]
    )


@triton.jit
def _mixture_backward(  # type: ignore[no-untyped-def]
    grad_ptr, x_ptr, logits_ptr, locs_ptr, scales_ptr, d_logits_ptr, d_locs_ptr, d_scales_ptr,
    logit_step, loc_step, scale_step, N, K, PADDED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < N
    weights, locs, scales, x, z, joint, log_q, log_total = _mixture(
        x_ptr, logits_ptr, locs_ptr, scales_ptr, logit_step, loc_step, scale_step,
        rows, inside, K, PADDED,
    )  # fmt: skip
    grad = tl.load(grad_ptr + rows, mask=inside, other=0.0)[:, None]
    share = tl.exp(joint - log_q[:, None])
    k = tl.arange(0, PADDED)
    places = rows[:, None] * K + k[None, :]
    known = inside[:, None] & (k < K)[None, :]
    tl.store(d_logits_ptr + places, grad * (share - weights), mask=known)
    tl.store(d_locs_ptr + places, grad * share * z / scales, mask=known)
    tl.store(d_scales_ptr + places, grad * share * (z * z - 1) / scales, mask=known)


class FusedMixture(torch.autograd.Function):
    """(log q(x) [N], points [N, S] with x in its stratum, that stratum [N])."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, logits: Tensor, locs: Tensor, scales: Tensor, nodes: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute all three in one launch."""
        x = x.contiguous()
        n, k = logits.shape
        log_q = torch.empty_like(x)
        points = x.new_empty((n, nodes))
        own = torch.empty_like(x, dtype=torch.long)
        # Drawn on the device: a captured graph gets another one at every replay.
        seed = torch.randint(2**31 - 1, (1,), device=x.device)
        _mixture_forward[(triton.cdiv(n, CONDITIONALS),)](
            x, logits, locs, scales, seed, log_q, points, own,
            *_row_steps(logits, locs, scales), n, k, nodes,
            PADDED=triton.next_power_of_2(k), STRATA=triton.next_power_of_2(nodes),
            ROWS=CONDITIONALS, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(x, logits, locs, scales)
        ctx.mark_non_differentiable(points, own)
        return log_q, points, own

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Responsibilities, in closed form."""
        return None, *_slopes(grads[0], *ctx.saved_tensors), None


class FusedLogProb(torch.autograd.Function):
    """log q at one point per mixture, x [N], with the gradient of its parameters."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, logits: Tensor, locs: Tensor, scales: Tensor) -> Tensor:
        """Compute the log density by the kernel for many points."""
        x = x.contiguous()
        ctx.save_for_backward(x, logits, locs, scales)
        return log_prob_at(x[:, None], logits, locs, scales)[:, 0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Responsibilities, in closed form."""
        return None, *_slopes(grads[0], *ctx.saved_tensors)


def log_prob_at(x: Tensor, logits: Tensor, locs: Tensor, scales: Tensor) -> Tensor:
    """Return log q at points of mixtures, without gradients.

    Parameters
    ----------
    x
        S points of each of N mixtures [N, S].
    logits
        unnormalised log weights [N, K].
    locs
        means [N, K].
    scales
        standard deviations [N, K].
    """
    return _at_points(_mixture_log_prob, x, logits, locs, scales)


def transport(u: Tensor, logits: Tensor, locs: Tensor, scales: Tensor) -> Tensor:
    """Transform uniforms to draws of mixtures, without gradients.

    Parameters
    ----------
    u
        S uniforms for each of N mixtures [N, S].
    logits
        unnormalised log weights [N, K].
    locs
        means [N, K].
    scales
        standard deviations [N, K].
    """
    return _at_points(_mixture_transport, u, logits, locs, scales)


def _at_points(kernel: Any, x: Tensor, logits: Tensor, locs: Tensor, scales: Tensor) -> Tensor:
    (n, points), k = x.shape, logits.shape[-1]
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    kernel[(triton.cdiv(n, CONDITIONALS),)](
        x.contiguous(), logits, locs, scales, out, *_row_steps(logits, locs, scales), n, k, points,
        PADDED=triton.next_power_of_2(k), POINTS=triton.next_power_of_2(points),
        ROWS=CONDITIONALS, num_warps=4,
    )  # fmt: skip
    return out


def _slopes(grad: Tensor, x: Tensor, logits: Tensor, locs: Tensor, scales: Tensor) -> list[Tensor]:
    n, k = logits.shape
    slopes = [x.new_empty((n, k)) for _ in range(3)]
    rows = 4 * CONDITIONALS
    _mixture_backward[(triton.cdiv(n, rows),)](
        grad.contiguous(), x, logits, locs, scales, *slopes, *_row_steps(logits, locs, scales),
        n, k, PADDED=triton.next_power_of_2(k), ROWS=rows, num_warps=4,
    )  # fmt: skip
    return slopes


def _row_steps(*parts: Tensor) -> list[int]:
    """The strides of rows: parts may be slices of the network's output, which are not copied."""
    assert all(part.stride(-1) == 1 for part in parts)
    return [part.stride(0) for part in parts]
