"""What the kernels drop, told again by PyTorch."""

import torch
from torch import Tensor

from aem.nn.kernels.arithmetic import multipliers


def dropout_mask(rows: int, columns: int, layers: int, dropout: float, seed: int) -> Tensor:
    """The masks of `dropped` by PyTorch [layers, rows, columns]: true where kept."""
    low = 0xFFFFFFFF

    def mul(a: Tensor, b: Tensor | int) -> Tensor:
        # Products of 32-bit numbers do not fit 63 bits: in two halves.
        return (a * (b & 0xFFFF) + (((a * (b >> 16)) & 0xFFFF) << 16)) & low

    r = (mul(torch.arange(rows), 0x9E3779B1) + seed) & low
    r = mul(r ^ (r >> 16), 0x7FEB352D)
    r = mul(r ^ (r >> 15), 0x846CA68B)
    r = r ^ (r >> 16)
    c = multipliers(layers, columns, torch.device("cpu")).long() & low
    return mul(r[:, None], c[:, None, :]) >= int(dropout * 2**32)
