"""The documented example: any encoder of Gaussian posteriors can have an AEM prior."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aem import AEM, ModelConfig
from aem.model.transforms.affine import Affine
from aem.paper.vae.images import Images
from aem.paper.vae.latents import aggregate_posterior
from aem.paper.vae.networks import ConvolutionalVae
from aem.vae import Draws, elbo
from aem.vae.prior import draw_table
from aem.vae.priors import log_prior, log_standard_normal


class TwoClusters(nn.Module):
    """An encoder of one's own: it sends x to one of two places, and is sure of it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        sign = x.sign()
        return torch.cat((2 * sign, 0.5 * x), -1), torch.full((len(x), 2), 0.2)


def test_the_documented_example() -> None:
    """docs/vae.md, as it stands there: the prior beats the Gaussian and knows both clusters."""
    page = Path(__file__).parents[2] / "docs" / "vae.md"
    code = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {
        "encoder": TwoClusters(),
        "x_train": torch.randn(500, 1),
        "x_validation": torch.randn(60, 1),
        "log_likelihood": lambda x, z: torch.zeros(z.shape[:2]),  # whatever the decoder says
    }
    exec(code[0], names)
    z, validation = names["z"], names["validation"]
    draws = Draws(z, torch.zeros(z.shape[:2]), validation.log_prob(z))
    gaussian = elbo(draws.log_weights(log_standard_normal(z))).mean()
    assert float(elbo(names["log_w"]).mean() - gaussian) > 1.0
    assert float(names["error"].max()) < 1e-2
    assert names["new"].shape == (16, 2)
    first = names["prior"]().sample((200,))[:, 0]
    assert float((first.abs() - 2).abs().mean()) < 0.6, "near the clusters"
    assert 0.2 < float((first > 0).float().mean()) < 0.8, "both of them"


def test_a_table_holds_fresh_draws(vae: ConvolutionalVae, images: Images) -> None:
    sampler = aggregate_posterior(vae, images.train)
    table = draw_table(sampler, 3, seed=1)
    assert table.shape == (120, 3)
    assert len(np.unique(table[:, 0])) == 120
    assert np.array_equal(table, draw_table(sampler, 3, seed=1))
    assert not np.isin(table, draw_table(sampler, 3, seed=2)).any()


def test_resampling_moves_rows_towards_the_models_posterior(
    vae: ConvolutionalVae, images: Images
) -> None:
    """Kept latents weigh more, on average, than the encoder's own."""
    torch.manual_seed(3)
    far = Affine(torch.full((3,), 1.0), torch.full((3,), 0.3))  # from the encoder's posteriors
    config = ModelConfig(features=3, hidden=8, blocks=0, components=2, frequencies=0)
    prior = AEM(config, standardisation=far).eval()
    plain = aggregate_posterior(vae, images.train)(0)
    kept = aggregate_posterior(vae, images.train, resample=16, prior=prior)(0)
    assert kept.shape == plain.shape
    with torch.no_grad():
        gain = log_prior(prior, kept).mean() - log_prior(prior, plain).mean()
    assert float(gain) > 1.0
