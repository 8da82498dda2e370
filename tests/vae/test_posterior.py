import torch
from torch.distributions import Independent, Normal, kl_divergence

from aem.vae import GaussianPosterior


def test_densities_and_divergence_are_torchs() -> None:
    mean, scale = torch.randn(4, 3), torch.rand(4, 3) + 0.1
    posterior, reference = GaussianPosterior(mean, scale), Normal(mean, scale)
    z = posterior.rsample(5)
    expected = Independent(reference, 1).log_prob(z.transpose(0, 1)).T
    torch.testing.assert_close(posterior.log_prob(z), expected)
    torch.testing.assert_close(posterior.kl(), kl_divergence(reference, Normal(0.0, 1.0)))


def test_a_seed_is_a_draw() -> None:
    posterior = GaussianPosterior(torch.zeros(1000, 2), torch.full((1000, 2), 0.5))
    assert torch.equal(posterior.sample(3), posterior.sample(3))
    assert not torch.equal(posterior.sample(3), posterior.sample(4))
    assert abs(float(posterior.sample(3).std()) - 0.5) < 0.05
