"""Figure 6 of the paper: binary images of the data next to unconditional samples."""

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from aem.base.randomness import seeded
from aem.model.aem import AEM
from aem.paper.plots import new_figure
from aem.paper.vae.binarise import binarise
from aem.paper.vae.networks import ConvolutionalVae

SIDE = 8  # images across, and down


@torch.no_grad()
def sample_images(
    vae: ConvolutionalVae, prior: AEM | None, count: int, seed: int
) -> Float[Tensor, "N 28 28"]:
    """Pixel probabilities at latents of the prior, or of the standard normal where there is none.

    A relative energy is drawn from exactly, a literal one as published: one of 100 proposal draws.

    Parameters
    ----------
    vae
        encoder and decoder.
    prior
        an AEM of the latents; None for the standard normal.
    count
        how many images.
    seed
        seed of the draws.
    """
    device = next(vae.parameters()).device
    with seeded(seed, device):
        if prior is None:
            z = torch.randn(count, vae.config.latents, device=device)
        else:
            method = "exact" if prior.config.energy == "relative" else "resample"
            z = prior().sample((count,), method=method)
        return vae.logits(z)[:, 0].sigmoid()


def tiles(images: Float[Tensor, "N 28 28"], side: int) -> NDArray[np.float32]:
    """Return images as one picture, with a thin line between them.

    Parameters
    ----------
    images
        side × side images.
    side
        how many stand beside each other, and below.
    """
    rows = torch.nn.functional.pad(images[: side * side].cpu(), (0, 1, 0, 1), value=0.5)
    grid = rows.unflatten(0, (side, side)).transpose(1, 2).flatten(2).flatten(0, 1)
    return np.asarray(grid[:-1, :-1].numpy(), dtype=np.float32)


def figure_six(data: Float[Tensor, "N 28 28"], probabilities: Float[Tensor, "N 28 28"]) -> Figure:
    """Draw data, samples, and the pixel probabilities these samples were drawn from.

    Parameters
    ----------
    data
        binary images of the data set.
    probabilities
        pixel probabilities of samples.
    """
    generator = torch.Generator().manual_seed(0)
    panels = (
        ("Data", data),
        ("AEM-VAE samples", binarise(probabilities.cpu(), generator)),
        ("The same, pixel probabilities", probabilities),
    )
    with mpl.rc_context({"font.size": 10, "font.family": "DejaVu Sans"}):
        figure, axes = new_figure(12.0, 4.5, 3)
        for axis, (title, images) in zip(axes, panels, strict=True):
            axis.imshow(tiles(images, SIDE), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set_axis_off()
            axis.set_title(title)
    return figure
