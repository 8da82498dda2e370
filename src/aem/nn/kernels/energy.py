"""The energy network on a GPU: one kernel forward, and one per residual block backward.

Forward, a tile of nodes passes through all layers on chip. The inputs of the matrices, which the
backward pass needs, are stored once in the type of the products. Their signs encode the masks of ReLU
and dropout, so no random number is drawn twice.

Backward, a program keeps the two matrices of a block and the sums of their gradients on chip. Each
number is read once, and gradients inside the block are never stored.

Nodes are constants (nothing is differentiated with respect to them), so the Fourier features are
computed where they are used and never stored.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from aem.nn.kernels.arithmetic import multipliers, sum_parts
from aem.nn.kernels.energy_kernels import energy_backward, energy_forward, energy_inputs, energy_top
from aem.nn.kernels.energy_operands import EnergyOperands
from aem.nn.kernels.energy_wide import wide_backward, wide_forward
from aem.nn.kernels.packing import Memory, memory_of, split_like

WHOLE = 256  # rows what is kept is rounded up to: whole tiles of any kernel
PROGRAMS = 132  # that share the nodes of a sum: one a multiprocessor
TILES = 2  # the fewest worth a program of their own
WIDEST = 128  # whose gradients fit on chip; wider networks go layer by layer


@dataclass(frozen=True)
class Launch:
    """The launch parameters of a kernel.

    Parameters
    ----------
    rows
        rows of a tile.
    warps
        warps per program.
    stages
        stages that its loop is pipelined in.
    programs
        programs, at most.
    """

    rows: int
    warps: int
    stages: int = 1
    programs: int = PROGRAMS


# Measured, not derived.
FORWARD = {32: Launch(128, 4, 2), 64: Launch(128, 8, 2), 128: Launch(128, 8, 2)}
SINGLE = {32: Launch(64, 4, 1), 64: Launch(64, 4, 1), 128: Launch(64, 4, 1)}  # in float32
PIECES = {32: 1, 64: 1, 128: 2}  # that the inner layer of a block is taken in, forward
BACKWARD = {32: Launch(64, 4, 3), 64: Launch(64, 4, 3), 128: Launch(64, 8, 3)}
TOP = Launch(32, 4, programs=4 * PROGRAMS)
INPUTS = Launch(32, 4, programs=4 * PROGRAMS)  # rows: conditionals


def _padded(frequencies: int) -> int:
    """The padded inner dimension of a product: a power of two from 16 on, or zero."""
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
        """Compute all layers in one launch, unless they are wide."""
        hidden, count = projected.shape[-1], len(blocks) // 4
        x, projected = x.contiguous(), projected.contiguous()
        whole = triton.cdiv(x.numel(), WHOLE) * WHOLE
        save = any(ctx.needs_input_grad)
        memory = memory_of(blocks, kind)
        call = EnergyOperands(
            x, frequencies, projected, first_bias, value, final, final_bias, memory, tanh, dropout
        )
        # Whole tiles: no store or load of them needs a mask.
        saved = memory.half.new_empty((2 * count + 1 if save else 0, whole, hidden))
        # Drawn on the device: a captured graph gets another one at every replay.
        seed = torch.randint(2**31 - 1, (1,), device=x.device) if dropout else saved
        through = _narrow_forward if hidden <= WIDEST else wide_forward
        out = through(call, saved, seed)
        if save:
            ctx.save_for_backward(x, frequencies, final, saved, *blocks)
            ctx.memory, ctx.dropout, ctx.tanh = memory, dropout, tanh
            ctx.projected_kind = projected.dtype
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Compute gradients block by block from the last one, then those of the first layer."""
        x, frequencies, final, saved, *blocks = ctx.saved_tensors
        memory: Memory = ctx.memory
        grad = grads[0].contiguous()
        (conditionals, nodes), (period, f) = x.shape, frequencies.shape
        hidden = saved.shape[-1]
        slopes = torch.empty_like(saved[-1])
        tiles = len(slopes) // TOP.rows
        top_parts = grad.new_empty((min(TOP.programs, tiles), 2, hidden))
        energy_top[(len(top_parts),)](
            grad, final, saved[-1], slopes, top_parts, grad.numel(), tiles,
            H=hidden, ROWS=TOP.rows, TANH=ctx.tanh, BACKWARDS=True, num_warps=TOP.warps,
        )  # fmt: skip
        by_final = sum_parts(top_parts)
        through = _narrow_backward if hidden <= WIDEST else wide_backward
        slopes = through(saved, slopes, memory, ctx.dropout, ctx.tanh)

        tiles = triton.cdiv(conditionals, INPUTS.rows)
        programs = min(INPUTS.programs, tiles)
        by_projected = grad.new_empty((conditionals, hidden), dtype=ctx.projected_kind)
        parts = grad.new_empty((programs, 2 + 2 * f, hidden))
        energy_inputs[(programs,)](
            x, frequencies, slopes, by_projected, parts, conditionals, nodes, period, f, tiles,
            H=hidden, PADDED=_padded(f), TILE=INPUTS.rows, BACKWARDS=len(saved) // 2 % 2 == 1,
            NATIVE=x.is_cuda, num_warps=INPUTS.warps,
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


def _narrow_forward(call: EnergyOperands, saved: Tensor, seed: Tensor) -> Tensor:
    """Compute all blocks in one launch."""
    x, frequencies, memory = call.x, call.frequencies, call.blocks
    _, whole, hidden = saved.shape
    launch = (FORWARD if memory.half.dtype == torch.bfloat16 else SINGLE)[hidden]
    layer = hidden * hidden + hidden
    count = len(memory.half) // (2 * layer)
    out = torch.empty_like(x, dtype=torch.float32)
    energy_forward[(whole // launch.rows,)](
        x, frequencies, call.projected, call.first_bias, call.value, memory.half, memory.weights,
        call.final, call.final_bias, multipliers(count, hidden, x.device), out, saved, seed,
        x.numel(), whole * hidden, x.shape[-1], *frequencies.shape,
        int(call.dropout * 2**32), 1 / (1 - call.dropout),
        H=hidden, PADDED=_padded(frequencies.shape[-1]), BLOCKS=count, ROWS=launch.rows,
        PIECES=PIECES[hidden], TANH=call.tanh, DROPOUT=call.dropout > 0, SAVE=len(saved) > 0,
        NATIVE=x.is_cuda, STAGES=launch.stages, num_warps=launch.warps,
    )  # fmt: skip
    return out


def _narrow_backward(
    saved: Tensor, slopes: Tensor, memory: Memory, dropout: float, tanh: bool
) -> Tensor:
    """Go from the slopes behind all blocks to those below them, with one launch per block."""
    layers, whole, hidden = saved.shape
    launch, blocks = BACKWARD[hidden], layers // 2
    size = 2 * (hidden * hidden + hidden)  # of a block's two matrices with their biases
    tiles = whole // launch.rows
    parts = memory.gradients.new_empty((min(launch.programs, triton.cdiv(tiles, TILES)), size))
    for k in reversed(range(blocks)):
        here = slice(k * size, (k + 1) * size)
        # In place: a tile of slopes is read by the program that writes it.
        energy_backward[(len(parts),)](
            slopes, saved[2 * k], saved[2 * k + 1], memory.half[here], slopes, parts, tiles, size,
            1 / (1 - dropout), H=hidden, ROWS=launch.rows, TANH=tanh, DROPOUT=dropout > 0,
            BACKWARDS=(blocks - k) % 2 == 0, NATIVE=slopes.is_cuda, STAGES=launch.stages,
            num_warps=launch.warps,
        )  # fmt: skip
        # Block by block: the parts are still in the cache.
        sum_parts(parts, memory.gradients[here])
    return slopes


@torch.no_grad()
def energy_in_single(
    tanh: bool,
    x: Tensor,
    frequencies: Tensor,
    projected: Tensor,
    first_bias: Tensor,
    value: Tensor,
    final: Tensor,
    final_bias: Tensor,
    *blocks: Tensor,
) -> Tensor:
    """Return f at S nodes of each of C conditionals, by float32 arithmetic.

    Fourier features are computed in the precision of x.

    Parameters
    ----------
    tanh
        whether the activation is tanh rather than ReLU.
    x
        nodes [C, S].
    frequencies
        Fourier frequencies, which repeat with the conditionals.
    projected
        what the context adds to the first layer [C, H].
    first_bias
        bias of the first layer.
    value
        weights of the first layer for the value and its features.
    final
        weights of the last layer.
    final_bias
        its bias.
    blocks
        W₁, b₁, W₂, b₂ of each block.
    """
    x, projected = x.contiguous(), projected.contiguous()
    memory = memory_of(blocks, torch.float32)
    whole = triton.cdiv(x.numel(), WHOLE) * WHOLE
    nothing = memory.half.new_empty((0, whole, projected.shape[-1]))
    call = EnergyOperands(
        x, frequencies, projected, first_bias, value, final, final_bias, memory, tanh
    )
    return _narrow_forward(call, nothing, nothing)
