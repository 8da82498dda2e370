"""The documented example: any encoder of Gaussian posteriors can have an AEM prior."""

import numpy as np
import torch
from torch import Tensor, nn

from aem import AEM, ModelConfig, TrainConfig
from aem.vae import Draws, GaussianPosterior, elbo, fit_prior
from aem.vae.images import Images
from aem.vae.latents import aggregate_posterior, draw_table
from aem.vae.networks import ConvolutionalVae
from aem.vae.objective import log_prior, log_standard_normal


class TwoClusters(nn.Module):
    """An encoder of one's own: it sends x to one of two places, and is sure of it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        sign = x.sign()
        return torch.cat((2 * sign, 0.5 * x), -1), torch.full((len(x), 2), 0.2)


def test_an_aem_prior_for_any_encoder() -> None:
    encoder = TwoClusters()
    x_train, x_validation = torch.randn(500, 1), torch.randn(100, 1)
    # As in docs/vae.md:
    train, validation = (GaussianPosterior(*encoder(x)) for x in (x_train, x_validation))
    prior = fit_prior(
        train.sample,
        validation.sample,
        ModelConfig(hidden=32, blocks=1, energy_hidden=16, energy_blocks=1, frequencies=0),
        TrainConfig(steps=300, batch_size=64, learning_rate=5e-3, nodes=8, averaging=0.99),
        draws=4,
        quiet=True,
    )
    z = validation.rsample(2)
    log_p = prior().log_prob(z)
    draws = Draws(z, torch.zeros(100, 2), validation.log_prob(z))  # whatever the decoder says
    ours = elbo(draws.log_weights(log_p)).mean()
    gaussian = elbo(draws.log_weights(log_standard_normal(z))).mean()
    assert float(ours - gaussian) > 1.0
    sampled = prior().sample((200,))
    assert float((sampled[:, 0].abs() - 2).abs().mean()) < 0.5, "both clusters and nothing between"
    assert 0.2 < float((sampled[:, 0] > 0).float().mean()) < 0.8


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
    prior = AEM(ModelConfig(features=3, hidden=8, blocks=0, components=2, frequencies=0)).eval()
    with torch.no_grad():  # a prior far from the encoder's posteriors
        prior.shift.fill_(1.0)
        prior.scale.fill_(0.3)
    plain = aggregate_posterior(vae, images.train)(0)
    kept = aggregate_posterior(vae, images.train, resample=16, prior=prior)(0)
    assert kept.shape == plain.shape
    with torch.no_grad():
        gain = log_prior(prior, kept).mean() - log_prior(prior, plain).mean()
    assert float(gain) > 1.0
