"""Bounds that are bounds, on a model whose log p(x) is known."""

import math

import torch
from torch.distributions import Normal

from aem.paper.vae.evaluate import summary
from aem.paper.vae.networks import ConvolutionalVae
from aem.vae.bounds import Draws, bounds_under, draw_posterior, elbo, importance_bound
from aem.vae.posterior import GaussianPosterior
from aem.vae.priors import PriorScores, standard_normal

X = torch.tensor([-1.0, 0.5, 2.0])
LOG_P = Normal(0.0, math.sqrt(2)).log_prob(X)  # of x = z + noise, both standard normal


def linear_gaussian(stretch: float, samples: int) -> Draws:
    """Draws of a posterior that is right for stretch = 1 and else too wide or too narrow."""
    posterior = GaussianPosterior(X[:, None] / 2, torch.full((3, 1), stretch * math.sqrt(0.5)))
    z = posterior.rsample(samples)
    return Draws(z, Normal(z[..., 0], 1.0).log_prob(X[:, None]), posterior.log_prob(z))


def weights(draws: Draws) -> torch.Tensor:
    log_prior = standard_normal(draws.z.flatten(0, 1)).log_prob
    return draws.log_weights(log_prior.reshape(draws.log_likelihood.shape))


def test_with_the_true_posterior_both_bounds_are_exact() -> None:
    log_w = weights(linear_gaussian(1.0, 7))
    torch.testing.assert_close(elbo(log_w).float(), LOG_P, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(importance_bound(log_w).float(), LOG_P, rtol=1e-5, atol=1e-5)


def test_the_bound_rises_with_the_number_of_samples() -> None:
    """From the same draws the mean over halves never exceeds the whole: Jensen, without luck."""
    log_w = weights(linear_gaussian(1.5, 4096))
    levels = torch.stack([importance_bound(log_w, k) for k in (1, 2, 4, 16, 64, 4096)])
    assert bool((levels.diff(dim=0) > 0).all())
    torch.testing.assert_close(levels[0], elbo(log_w))
    assert bool((levels[0].float() < LOG_P - 0.05).all()), "the ELBO has a gap to close"
    torch.testing.assert_close(levels[-1].float(), LOG_P, atol=0.1, rtol=0.0)


def test_the_bound_of_a_network_rises_too(vae: ConvolutionalVae) -> None:
    x = (torch.rand(5, 1, 28, 28) < 0.3).float()
    log_w = weights(draw_posterior(vae, x, 32))
    means = [float(importance_bound(log_w, k).mean()) for k in (1, 2, 8, 32)]
    assert means == sorted(means)
    assert means[-1] > means[0]


def test_chunks_do_not_show(vae: ConvolutionalVae) -> None:
    """Many images in pieces have the likelihoods and densities they have alone."""
    x = (torch.rand(30, 1, 28, 28) < 0.3).float()
    draws = draw_posterior(vae, x, 40)
    assert draws.z.shape == (30, 40, 3)
    with torch.no_grad():
        alone = vae.log_likelihood(x[17:18], draws.z[17:18])
    torch.testing.assert_close(draws.log_likelihood[17:18], alone, rtol=1e-4, atol=1e-3)


def test_errors_enter_the_bounds_as_weights_say() -> None:
    draws = linear_gaussian(1.5, 16)
    log_prob = standard_normal(draws.z.flatten(0, 1)).log_prob
    clean = bounds_under(draws, PriorScores(log_prob))
    same = bounds_under(draws, PriorScores(log_prob, torch.full_like(log_prob, 1e-3)))
    assert clean.bound_error == 0.0
    assert math.isclose(same.bound_error, 1e-3, rel_tol=1e-6)
    assert math.isclose(same.elbo_error, 1e-3, rel_tol=1e-6)
    shifted = bounds_under(draws, PriorScores(log_prob + 1e-3))
    assert math.isclose(float((shifted.bound - clean.bound).mean()), 1e-3, rel_tol=1e-4)


def test_a_latent_without_density_costs_the_elbo_and_not_the_bound() -> None:
    draws = linear_gaussian(1.5, 16)
    log_prob = standard_normal(draws.z.flatten(0, 1)).log_prob
    log_prob[3] = -torch.inf
    record = summary(bounds_under(draws, PriorScores(log_prob, torch.zeros_like(log_prob))))
    assert record["elbo"] is None
    assert math.isfinite(record["log_prob"])
    assert record["latents_without_density"] == 1


def test_differences_are_taken_image_by_image() -> None:
    draws = linear_gaussian(1.5, 16)
    log_prob = standard_normal(draws.z.flatten(0, 1)).log_prob
    baseline = bounds_under(draws, PriorScores(log_prob))
    better = bounds_under(draws.first(2), PriorScores(log_prob[:32] + 0.25))
    record = summary(better, baseline)
    assert math.isclose(record["log_prob_over_proposal"], 0.25, rel_tol=1e-6)
    assert record["log_prob_over_proposal_2se"] < 1e-6
    assert record["images"] == 2
