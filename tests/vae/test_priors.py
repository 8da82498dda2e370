"""Every way to score latents under the same AEM."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from aem import AEM, ModelConfig
from aem.base.progress import silent
from aem.conditionals.normalizer import Quadrature
from aem.evaluation.kde import fit_kde
from aem.model.scoring import without_density
from aem.paper.vae.networks import ConvolutionalVae
from aem.vae.bounds import bounds_under, draw_posterior
from aem.vae.priors import Prior, importance_prior, kde_prior, proposal_prior, quadrature_prior

CONFIG: dict[str, Any] = {
    "features": 3,
    "hidden": 16,
    "blocks": 1,
    "gamma": 8,
    "energy_hidden": 16,
    "energy_blocks": 1,
    "components": 3,
    "frequencies": 0,
}


def aem(randomise: Callable[[nn.Module], None], energy: str = "relative") -> AEM:
    model = AEM(ModelConfig(**{**CONFIG, "energy": energy}))
    randomise(model)
    return model.eval()


def log_prob(prior: Prior, z: torch.Tensor) -> torch.Tensor:
    done: list[tuple[int, int]] = []
    scores = prior(z, lambda _, now, total: done.append((now, total)))
    assert done[-1] == (len(z), len(z)), "progress ends where the work does"
    return scores.log_prob


def test_without_energy_the_aem_is_its_proposal(
    vae: ConvolutionalVae, randomise: Callable[[nn.Module], None]
) -> None:
    """KL and ELBO against an AEM whose energy is switched off are those against the proposal."""
    model = aem(randomise)
    x = (torch.rand(3, 1, 28, 28) < 0.3).float()
    draws = draw_posterior(vae, x, 4)
    z = draws.z.flatten(0, 1)
    quadrature = quadrature_prior(model, Quadrature(tolerance=1e-6))

    def bounds(prior: Prior) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        found = bounds_under(draws, prior(z, silent))
        return found.kl, found.elbo, found.bound

    proposal = bounds(proposal_prior(model))
    assert not torch.allclose(bounds(quadrature)[0], proposal[0], atol=1e-2), "it was on"
    with torch.no_grad():
        model.energy.final.weight.zero_()
    off = bounds(quadrature_prior(model, Quadrature(tolerance=1e-6)))
    for found, expected in zip(off, proposal, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0.0)


def test_the_forms_of_one_aem_agree(randomise: Callable[[nn.Module], None]) -> None:
    model = aem(randomise)
    z = model().sample((60,))
    exact = quadrature_prior(model, Quadrature(tolerance=1e-4))(z, silent)
    assert exact.error is not None
    assert float(exact.error.max()) < 1e-3
    torch.testing.assert_close(exact.log_prob, model().log_prob(z).double(), atol=2e-3, rtol=0.0)
    sampled = log_prob(importance_prior(model, 2000), z)
    torch.testing.assert_close(sampled, exact.log_prob, atol=0.2, rtol=0.0)
    kde = fit_kde(model, z, samples=300)
    smoothed = log_prob(kde_prior(model, kde), z)
    assert float((smoothed - exact.log_prob).abs().mean()) < 0.3


def test_a_literal_energy_without_tails_has_density_zero(
    randomise: Callable[[nn.Module], None],
) -> None:
    """A constant energy does not decay: its normaliser is infinite, sampled or not."""
    model = aem(randomise, "literal")
    with torch.no_grad():
        model.energy.final.weight.zero_()
    z = torch.randn(4, 3)
    assert bool(without_density(model.in_double(), z).all())
    assert bool(log_prob(quadrature_prior(model, Quadrature()), z).isneginf().all())
    assert math.isfinite(float(log_prob(importance_prior(model, 50), z).mean()))
    assert not bool(without_density(aem(randomise).in_double(), z).any())


def test_mass_beyond_the_proposals_reach_is_told_apart(
    randomise: Callable[[nn.Module], None],
) -> None:
    """Importance sampling with many draws finds what quadrature says of the proposal's reach."""
    model = aem(randomise, "literal")
    with torch.no_grad():  # an energy that decays slowly: f = |x − 1| / 8
        for parameter in model.energy.parameters():
            parameter.zero_()
        for unit, sign in ((0, 1.0), (1, -1.0)):
            model.energy.from_value.weight[unit] = sign
            model.energy.from_context.bias[unit] = -sign
            model.energy.final.weight[0, unit] = 0.125
    z = torch.zeros(20, 3)
    scores = quadrature_prior(model, Quadrature(tolerance=1e-4))(z, silent)
    assert scores.within_reach is not None
    assert bool((scores.within_reach > scores.log_prob + 0.3).all())
    sampled = importance_prior(model, 20_000)(z, silent).log_prob.mean()
    assert abs(float(sampled - scores.within_reach.mean())) < 0.15
