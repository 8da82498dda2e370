"""Grey images as binary ones: each pixel is one with a probability equal to its grey level.

*Dynamic* binarisation draws afresh whenever an image is looked at, so no two epochs see the same
image; for validation and test the draw is fixed by a seed, so that scores can be compared.
"""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor


def grey_levels(images: UInt8[Tensor, "*N 28 28"]) -> Float[Tensor, "*N 28 28"]:
    """Return bytes as probabilities.

    Parameters
    ----------
    images
        grey levels from 0 to 255.
    """
    return images.float() / 255


def binarise(
    grey: Float[Tensor, "*N 28 28"], generator: torch.Generator | None = None
) -> Float[Tensor, "*N 28 28"]:
    """Draw binary images afresh: each pixel is one with a probability equal to its grey level.

    Parameters
    ----------
    grey
        probabilities of ones, as `grey_levels` returns them.
    generator
        random generator; that of PyTorch without one.
    """
    u = torch.rand(grey.shape, generator=generator, dtype=grey.dtype, device=grey.device)
    return (u < grey).to(grey.dtype)


def fixed_binarisation(images: UInt8[Tensor, "N 28 28"], seed: int) -> Float[Tensor, "N 28 28"]:
    """Draw binary images by a seed, the same on every device.

    Parameters
    ----------
    images
        grey levels from 0 to 255.
    seed
        seed of the draws.
    """
    grey = grey_levels(images.cpu())
    return binarise(grey, torch.Generator().manual_seed(seed)).to(images.device)
