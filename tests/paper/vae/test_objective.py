"""Gradients of the bounds, against autograd and against closed forms."""

import math

import pytest
import torch
from torch import Tensor, nn

from aem import AEM, ModelConfig
from aem.model.transforms.affine import Affine
from aem.paper.vae.binarise import binarise
from aem.paper.vae.config import NetworkConfig
from aem.paper.vae.networks import ConvolutionalVae
from aem.paper.vae.stages.objective import negative_bound
from aem.vae.posterior import GaussianPosterior
from aem.vae.priors import log_proposal, log_standard_normal


class Toy(ConvolutionalVae):
    """One latent, one posterior for all images, and a likelihood with one parameter."""

    def __init__(self) -> None:
        super().__init__(NetworkConfig(latents=1, channels=1, blocks=0))
        self.mean, self.log_scale = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(0.2))
        self.slope = nn.Parameter(torch.tensor(1.5))

    def encode(self, x: Tensor) -> GaussianPosterior:
        shape = (len(x), 1)
        return GaussianPosterior(self.mean.expand(shape), self.log_scale.exp().expand(shape))

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        return -0.5 * (1.0 - self.slope * z[..., 0]).square()

    def numbers(self) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter]:
        return self.mean, self.log_scale, self.slope


def many(count: int) -> Tensor:
    return torch.zeros(count, 1, 1, 1).expand(count, 1, 28, 28)


def test_one_sample_of_the_gaussian_prior_is_the_papers_objective(vae: ConvolutionalVae) -> None:
    x = binarise(torch.full((6, 1, 28, 28), 0.3))
    torch.manual_seed(1)
    loss = negative_bound(vae, None, x, samples=1, beta=0.9)
    torch.manual_seed(1)
    posterior = vae.encode(x)
    reconstruction = vae.log_likelihood(x, posterior.rsample(1))[:, 0]
    expected = -(reconstruction - 0.9 * posterior.kl().sum(-1)).mean()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("samples", [1, 5])
def test_the_gradient_is_that_of_the_bound(samples: int) -> None:
    """Same mean as plain autograd through the bound; the decoder's is even the same numbers."""
    toy, x = Toy(), many(40_000)
    prior = AEM(ModelConfig(features=1, hidden=8, blocks=0, components=2, frequencies=0))
    torch.manual_seed(0)
    loss = negative_bound(toy, prior, x, samples=samples, beta=1.0)
    ours = torch.autograd.grad(loss, toy.numbers())
    posterior = toy.encode(x)
    torch.manual_seed(0)
    z = posterior.rsample(samples)
    log_w = toy.log_likelihood(x, z) + log_proposal(prior, z) - posterior.log_prob(z)
    bound = log_w.logsumexp(1).mean() - math.log(samples)
    plain = torch.autograd.grad(-bound, toy.numbers())
    torch.testing.assert_close(loss, -bound)
    torch.testing.assert_close(ours[2], plain[2])
    for mine, theirs in zip(ours[:2], plain[:2], strict=True):
        torch.testing.assert_close(mine, theirs, atol=0.03, rtol=0.0)
        if samples > 1:
            assert not torch.equal(mine, theirs)


def test_warm_up_trains_the_prior_alone(vae: ConvolutionalVae) -> None:
    prior = AEM(ModelConfig(features=3, hidden=16, blocks=1, components=2, frequencies=0))
    x = binarise(torch.full((4, 1, 28, 28), 0.3))
    negative_bound(vae, prior, x, samples=3, beta=1.0, prior_only=True).backward()
    assert all(p.grad is None for p in vae.parameters())
    final = prior.arnn.final.weight.grad
    assert final is not None
    assert float(final.abs().sum()) > 0
    negative_bound(vae, prior, x, samples=3, beta=1.0).backward()
    assert all(p.grad is not None for p in vae.parameters())


def test_a_proposal_counts_the_change_of_units() -> None:
    config = ModelConfig(features=2, hidden=8, blocks=0, components=2, frequencies=0)
    units = Affine(torch.tensor([1.0, -2.0]), torch.tensor([3.0, 0.5]))
    prior = AEM(config, standardisation=units)
    z = torch.tensor([[0.5, -2.5]])
    points = torch.cartesian_prod(torch.linspace(-40, 40, 201), torch.linspace(-10, 6, 201))
    mass = log_proposal(prior, points).detach().exp().sum() * (80 / 200) * (16 / 200)
    assert abs(float(mass) - 1) < 1e-3
    assert log_proposal(prior, z[None]).shape == (1, 1)
    torch.testing.assert_close(
        log_standard_normal(z)[0], -0.5 * z.square().sum() - math.log(2 * math.pi)
    )
