"""Small random deformations of training images, against overfitting.

Each image is shifted, turned, scaled, sheared and bent a little, as another hand might have written it.
Only training images are ever deformed, and less and less of it towards the end of a training: what is
evaluated is a density of the images as they are.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from aem.paper.vae.config import AugmentConfig

CONTROLS = 5  # points a side whose displacements bend an image


def warp(
    grey: Float[Tensor, "B 1 28 28"],
    config: AugmentConfig,
    strength: Float[Tensor, ""] | float = 1.0,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "B 1 28 28"]:
    """Deform each image in a way of its own.

    Parameters
    ----------
    grey
        grey levels from 0 to 1.
    config
        by how much, at a strength of one.
    strength
        what all of that is multiplied by.
    generator
        random generator; that of PyTorch without one.
    """
    count, _, height, width = grey.shape

    def uniform(most: float, *more: int) -> Tensor:
        u = torch.rand(count, *more, device=grey.device, generator=generator)
        return strength * most * (2 * u - 1)

    angle, shear = uniform(math.radians(config.rotation)), uniform(config.shear)
    sizes, shifts = 1 + uniform(config.zoom, 2), uniform(2 * config.shift / width, 2)
    bends = torch.randn(count, 2, CONTROLS, CONTROLS, device=grey.device, generator=generator)
    bends = bends - bends.mean((2, 3), keepdim=True)  # a shift is another matter
    bends = strength * (2 * config.elastic / width) * bends
    cos, sin = angle.cos(), angle.sin()
    # Where a pixel takes its grey level from: turned, sheared, scaled and shifted.
    rows = torch.stack(
        (
            torch.stack((cos / sizes[:, 0], (shear - sin) / sizes[:, 1], shifts[:, 0]), -1),
            torch.stack((sin / sizes[:, 0], cos / sizes[:, 1], shifts[:, 1]), -1),
        ),
        1,
    )
    grid = F.affine_grid(rows, list(grey.shape), align_corners=False)
    field = F.interpolate(bends, (height, width), mode="bicubic", align_corners=True)
    grid = grid + field.movedim(1, -1)
    moved = F.grid_sample(grey, grid, mode="bicubic", align_corners=False)
    # Between pixels even bicubic levels are duller: as many pixels should be in doubt as before.
    blurred = torch.as_tensor(2.0 * strength, device=grey.device).clamp(max=1)
    return (0.5 + (1 + config.contrast * blurred) * (moved - 0.5)).clamp(0, 1)
