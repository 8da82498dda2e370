"""ResMADE in bfloat16 on a GPU, forward and backward, with one launch per layer.

Bias, residual, activation and dropout are computed in the kernel of the product. The gradients of the
weights of all blocks are computed in one launch, and written to the memory of the optimiser.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aem.nn.kernels.arithmetic import multipliers
from aem.nn.kernels.layers import backward_layer, forward_layer, tiles_for, weight_gradients
from aem.nn.kernels.packing import memory_of, split_like


@triton.jit
def _embed_kernel(  # type: ignore[no-untyped-def]
    x_ptr, frequency_ptr, out_ptr, N, D, F, reach, ROWS: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """Each value, clamped, with sines and cosines of its multiples (`aem.nn.features`)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < N
    x = tl.load(x_ptr + rows, mask=inside, other=0.0)
    x = tl.minimum(tl.maximum(x, -reach), reach)
    start = out_ptr + rows * (1 + 2 * F)
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    tl.store(start, x.to(KIND), mask=inside)
    if PADDED > 0:
        f = tl.arange(0, PADDED)
        known = inside[:, None] & (f < F)[None, :]
        omega = tl.load(frequency_ptr + (rows % D)[:, None] * F + f[None, :], mask=known, other=0.0)
        amplitude = tl.rsqrt(tl.maximum(omega * 0.3183098861837907, 1.0))
        phase = x[:, None] * omega
        there = start[:, None] + 1 + f[None, :]
        tl.store(there, (amplitude * tl.sin(phase)).to(KIND), mask=known)
        tl.store(there + F, (amplitude * tl.cos(phase)).to(KIND), mask=known)


def embed(x: Tensor, frequencies: Tensor, reach: float, kind: torch.dtype) -> Tensor:
    """Return rows as a network reads them: [B, D · (1 + 2F)].

    Parameters
    ----------
    x
        rows [B, D].
    frequencies
        Fourier frequencies [D, F].
    reach
        values are clamped to as far from zero.
    kind
        the type of the result.
    """
    (rows, features), f = x.shape, frequencies.shape[-1]
    out = x.new_empty((rows, features * (1 + 2 * f)), dtype=kind)
    size = 64 if f else 256
    _embed_kernel[(triton.cdiv(x.numel(), size),)](
        x.contiguous(), frequencies, out, x.numel(), features, f, reach,
        ROWS=size, PADDED=triton.next_power_of_2(f) if f else 0, num_warps=4,
    )  # fmt: skip
    return out


@dataclass(frozen=True)
class Degrees:
    """The sorted degrees of the units of each layer (`aem.nn.masks`).

    Parameters
    ----------
    inputs
        degrees of the embedded inputs.
    hidden
        degrees of the hidden units.
    outputs
        degrees of the outputs.
    """

    inputs: Tensor
    hidden: Tensor
    outputs: Tensor

    def __post_init__(self) -> None:
        self.__dict__["bounds"] = {}

    def ends(self, into: str, out: str, tile: int, *, strict: bool = False) -> Tensor:
        """Return for each tile of outputs how many of the leading inputs any of them may see.

        Parameters
        ----------
        into
            the layer that is read: "inputs", "hidden" or "outputs".
        out
            the layer that is computed.
        tile
            how many units a tile has.
        strict
            whether a unit may only see lower degrees.
        """
        return self._bounds("ends", into, out, tile, strict)

    def starts(self, into: str, out: str, tile: int, *, strict: bool = False) -> Tensor:
        """Return for each tile of inputs the first output that may see any of them.

        Parameters
        ----------
        into
            the layer that is read: "inputs", "hidden" or "outputs".
        out
            the layer that is computed.
        tile
            how many units a tile has.
        strict
            whether a unit may only see lower degrees.
        """
        return self._bounds("starts", into, out, tile, strict)

    def _bounds(self, kind: str, into: str, out: str, tile: int, strict: bool) -> Tensor:
        # Computed once: a captured graph must find them made.
        bounds: dict[Any, Tensor] = self.__dict__["bounds"]
        key = (kind, into, out, tile, strict)
        if key not in bounds:
            below, above = getattr(self, into), getattr(self, out)
            if kind == "ends":
                highest = torch.stack([part.max() for part in above.split(tile)])
                found = torch.searchsorted(below, highest, right=not strict)
            else:
                lowest = torch.stack([part.min() for part in below.split(tile)])
                found = torch.searchsorted(above, lowest, right=strict)
            bounds[key] = found.to(torch.int32)
        return bounds[key]


class FusedResMADE(torch.autograd.Function):
    """Embedded rows [B, I] → outputs [B, O] in float32.

    Parameters come in their order: the first layer's weight and bias, W₁, b₁, W₂, b₂ of each block,
    the last layer's. Weights beyond the masks are zero.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        degrees: Degrees,
        dropout: float,
        tanh: bool,
        kind: torch.dtype,
        *parameters: Tensor,
    ) -> Tensor:
        """Compute all layers, one after the other."""
        initial, final = parameters[:2], parameters[-2:]
        blocks = parameters[2:-2]
        (rows, _), hidden, outputs = x.shape, len(initial[0]), len(final[0])
        first, first_bias = (memory_of([p], kind) for p in initial)
        middle = memory_of(blocks, kind)
        last, last_bias = (memory_of([p], kind) for p in final)
        matrices = _matrices(middle.half, hidden)
        biases = middle.weights.view(len(matrices), -1)[:, hidden**2 :]
        tiles, last_tiles = tiles_for(rows, hidden), tiles_for(rows, outputs)
        across = degrees.ends("hidden", "hidden", tiles.columns)
        seed = torch.randint(2**31 - 1, (1,), device=x.device) if dropout else None
        factors = multipliers(len(matrices) // 2, hidden, x.device)

        saved = first.half.new_empty((len(matrices) + 1, rows, hidden))
        h = x.new_empty((rows, hidden), dtype=torch.float32)
        out = x.new_empty((rows, outputs), dtype=torch.float32)
        forward_layer(
            x, first.half.view_as(initial[0]), first_bias.weights,
            degrees.ends("inputs", "hidden", tiles.columns), tiles,
            total=h, active=saved[0], tanh=tanh,
        )  # fmt: skip
        for k in range(0, len(matrices), 2):
            forward_layer(
                saved[k], matrices[k], biases[k], across, tiles,
                active=saved[k + 1], tanh=tanh, dropout=dropout, seed=seed,
                multipliers=factors[k // 2],
            )  # fmt: skip
            forward_layer(
                saved[k + 1], matrices[k + 1], biases[k + 1], across, tiles,
                total=h, add=True, active=saved[k + 2], tanh=tanh,
            )  # fmt: skip
        forward_layer(
            saved[-1], last.half.view_as(final[0]), last_bias.weights,
            degrees.ends("hidden", "outputs", last_tiles.columns, strict=True), last_tiles,
            total=out,
        )  # fmt: skip
        ctx.save_for_backward(x, saved, *parameters)
        ctx.memory = first, first_bias, middle, last, last_bias
        ctx.degrees, ctx.dropout, ctx.tanh, ctx.kind = degrees, dropout, tanh, kind
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Compute gradients of activations from the last layer on, then those of all weights."""
        x, saved, *parameters = ctx.saved_tensors
        first, first_bias, middle, last, last_bias = ctx.memory
        degrees: Degrees = ctx.degrees
        kind, dropout, tanh = ctx.kind, ctx.dropout, ctx.tanh
        grad = grads[0].contiguous()
        layers, rows, hidden = saved.shape
        matrices = _matrices(middle.half, hidden)
        tiles = tiles_for(rows, hidden)
        across = degrees.starts("hidden", "hidden", tiles.columns)
        slopes = torch.empty_like(saved)
        # slopes[i] lies behind matrix i of the blocks; the last one behind the first layer.
        backward_layer(
            grad, last.half.view_as(parameters[-2]),
            degrees.starts("hidden", "outputs", tiles.columns, strict=True), tiles,
            gate=saved[-1], out=slopes[layers - 2], tanh=tanh,
        )  # fmt: skip
        for k in reversed(range(0, layers - 1, 2)):
            backward_layer(
                slopes[k + 1], matrices[k + 1], across, tiles,
                gate=saved[k + 1], out=slopes[k], tanh=tanh, dropout=dropout,
            )  # fmt: skip
            backward_layer(
                slopes[k], matrices[k], across, tiles,
                gate=saved[k], out=slopes[k - 1], above=slopes[k + 1], tanh=tanh,
            )  # fmt: skip
        gradients = middle.gradients.view(1, layers - 1, -1)
        square = hidden**2
        weight_gradients(
            slopes[:-1], saved[:-1], degrees.hidden, degrees.hidden,
            gradients[..., :square], gradients[..., square:], strict=False, kind=kind,
        )  # fmt: skip
        weight_gradients(
            slopes[-1:], x[None], degrees.hidden, degrees.inputs,
            first.gradients[None, None], first_bias.gradients[None, None], strict=False, kind=kind,
        )  # fmt: skip
        weight_gradients(
            grad[None], saved[-1:], degrees.outputs, degrees.hidden,
            last.gradients[None, None], last_bias.gradients[None, None], strict=True, kind=kind,
        )  # fmt: skip
        flat = (first, first_bias, *split_like(middle.gradients, parameters[2:-2]), last, last_bias)
        found = [part if isinstance(part, Tensor) else part.gradients for part in flat]
        return (
            *(None,) * 5,
            *(g.view_as(p) for g, p in zip(found, parameters, strict=True)),
        )


def _matrices(flat: Tensor, hidden: int) -> list[Tensor]:
    """Return the matrices of all blocks; each is stored before its bias."""
    layers = flat.view(-1, hidden**2 + hidden)
    return [layer[: hidden**2].view(hidden, hidden) for layer in layers]
