"""Rows for the prior: draws of the aggregate posterior, each from a freshly binarised image.

With `resample` = K an image draws K latents and keeps one in proportion to its importance weight
(sampling importance resampling). Such rows come from the model's own posterior p(z | x), whose
aggregate is what a prior must match to raise log p(x) itself: fitting to them is a step of
Monte-Carlo EM, where the paper's rows (K = 1) raise the ELBO.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor

from aem.model import AEM
from aem.vae.binarise import binarise, grey_levels
from aem.vae.bounds import DECODED, draw_posterior
from aem.vae.networks import ConvolutionalVae
from aem.vae.objective import log_prior

Sampler = Callable[[int], Tensor]  # from a seed to one latent vector of every image


def aggregate_posterior(
    vae: ConvolutionalVae,
    images: UInt8[Tensor, "N 28 28"],
    *,
    resample: int = 1,
    prior: AEM | None = None,
) -> Sampler:
    """A sampler of the aggregate posterior of grey images."""

    @torch.no_grad()
    def draw(seed: int) -> Tensor:
        generator = torch.Generator(images.device).manual_seed(seed)
        parts = []
        for some in images.split(max(DECODED[images.device.type] // resample, 1)):
            x = binarise(grey_levels(some[:, None]), generator)
            if resample == 1:
                parts.append(vae.encode(x).rsample(1, generator)[:, 0])
                continue
            draws = draw_posterior(vae, x, resample, generator)
            weights = draws.log_weights(log_prior(prior, draws.z)).softmax(1)
            chosen = torch.multinomial(weights, 1, generator=generator)
            parts.append(draws.z.take_along_dim(chosen[..., None], 1)[:, 0])
        return torch.cat(parts)

    return draw


def draw_table(
    sampler: Sampler, draws: int, seed: int = 0, report: Callable[[int], None] | None = None
) -> NDArray[np.float32]:
    """Several draws below each other, as a table to fit a prior to."""
    parts = []
    for number in range(draws):
        # Seeds of different tables must not meet.
        rows: Float[Tensor, "N L"] = sampler(1_000_003 * seed + number)
        parts.append(rows.float().cpu().numpy())
        if report is not None:
            report(number + 1)
    return np.concatenate(parts)
