"""Rows for the prior: draws of the aggregate posterior, each from a freshly binarised image.

With `resample` = K an image draws K latents and keeps one in proportion to its importance weight
(sampling importance resampling). Such rows come from the model's own posterior p(z | x), whose
aggregate is what a prior must match to raise log p(x) itself: fitting to them is a step of
Monte-Carlo EM, where the paper's rows (K = 1) raise the ELBO.
"""

import torch
from jaxtyping import UInt8
from torch import Tensor

from aem.model.aem import AEM
from aem.paper.vae.binarise import binarise, grey_levels
from aem.paper.vae.networks import ConvolutionalVae
from aem.vae.bounds import DECODED, draw_posterior
from aem.vae.prior import LatentSampler
from aem.vae.priors import log_prior


def aggregate_posterior(
    vae: ConvolutionalVae,
    images: UInt8[Tensor, "N 28 28"],
    *,
    resample: int = 1,
    prior: AEM | None = None,
) -> LatentSampler:
    """Return a sampler of the aggregate posterior of grey images.

    Parameters
    ----------
    vae
        encoder and decoder.
    images
        grey levels from 0 to 255.
    resample
        how many latents each is chosen from, by its weight; one for plain draws of the posterior.
    prior
        the prior that those weights are with; None for the standard normal.
    """

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
