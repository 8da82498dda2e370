"""The update of the weights in one kernel: clipping, AdamW, averaging, rounding.

Adam alone is many short operations on each of a hundred tensors; on one long vector it is a single
kernel that reads and writes every number once.
"""

import triton
import triton.language as tl
from torch import Tensor

SIZE = 2048  # numbers per program


@triton.jit
def _update_kernel(  # type: ignore[no-untyped-def]
    weight_ptr, grad_ptr, first_ptr, second_ptr, average_ptr, half_ptr,
    norm_ptr, rate_ptr, keep_ptr, step_ptr, N, clip, decay, beta1, beta2, epsilon,
    CLIP: tl.constexpr, HALF: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    here = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = here < N
    g = tl.load(grad_ptr + here, mask=inside, other=0.0)
    w = tl.load(weight_ptr + here, mask=inside, other=0.0)
    m = tl.load(first_ptr + here, mask=inside, other=0.0)
    v = tl.load(second_ptr + here, mask=inside, other=0.0)
    average = tl.load(average_ptr + here, mask=inside, other=0.0)
    rate, keep, step = tl.load(rate_ptr), tl.load(keep_ptr), tl.load(step_ptr)
    if CLIP:
        g *= tl.minimum(clip / (tl.load(norm_ptr) + 1e-6), 1.0)
    m += (1 - beta1) * (g - m)
    v += (1 - beta2) * (g * g - v)
    # Bias corrections 1 − βᵗ by way of powers of two.
    corrected1 = 1 - tl.exp2(step * tl.log2(beta1))
    corrected2 = 1 - tl.exp2(step * tl.log2(beta2))
    w -= rate * decay * w
    w -= rate * (m / corrected1) / (tl.sqrt(v / corrected2) + epsilon)
    average += (1 - keep) * (w - average)
    tl.store(weight_ptr + here, w, mask=inside)
    tl.store(first_ptr + here, m, mask=inside)
    tl.store(second_ptr + here, v, mask=inside)
    tl.store(average_ptr + here, average, mask=inside)
    if HALF:
        tl.store(half_ptr + here, w.to(half_ptr.dtype.element_ty), mask=inside)


def update(
    weights: Tensor,
    gradients: Tensor,
    first: Tensor,
    second: Tensor,
    averages: Tensor,
    half: Tensor | None,
    *,
    norm: Tensor,
    rate: Tensor,
    keep: Tensor,
    step: Tensor,
    clip: float,
    decay: float,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """AdamW on flat vectors of equal length; norm, rate, keep and step are numbers on the device."""
    _update_kernel[(triton.cdiv(len(weights), SIZE),)](
        weights, gradients, first, second, averages, weights if half is None else half,
        norm, rate, keep, step, len(weights), clip, decay, *betas, epsilon,
        CLIP=clip > 0, HALF=half is not None, SIZE=SIZE, num_warps=8,
    )  # fmt: skip
