"""Small rotations and changes of size of training images, against overfitting.

Only the training images are ever warped, and only for a first part of the training: what is
evaluated is a density of the images as they are.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def warp(
    grey: Float[Tensor, "B 1 28 28"], *, rotation: float, zoom: float
) -> Float[Tensor, "B 1 28 28"]:
    """Turn each image by up to `rotation` degrees and scale it by up to a share `zoom`, at random."""

    def uniform(most: float) -> Tensor:
        return most * (2 * torch.rand(len(grey), device=grey.device) - 1)

    angle, size = uniform(math.radians(rotation)), 1 + uniform(zoom)
    cos, sin, zero = angle.cos() / size, angle.sin() / size, torch.zeros_like(angle)
    rows = (torch.stack((cos, -sin, zero), -1), torch.stack((sin, cos, zero), -1))
    grid = F.affine_grid(torch.stack(rows, 1), list(grey.shape), align_corners=False)
    return F.grid_sample(grey, grid, mode="bilinear", align_corners=False).clamp(0, 1)
