"""Priors to score latents under: each a function of the latents that gives log densities and errors.

A prior reports how many latents are done, for they may take long.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aem.base.progress import Report, counting, silent
from aem.conditionals.normalizer import Quadrature
from aem.conditionals.proposals.base import LOG_ROOT_2PI
from aem.evaluation.importance import MEMORY, importance_scores
from aem.evaluation.kde import KDE
from aem.model.aem import AEM
from aem.model.scoring import by_row, without_density

BLOCK = {"cpu": 256, "cuda": 8192}  # latents scored between two reports


@dataclass(frozen=True)
class PriorScores:
    """Log densities of M latents, and the error each may have; None where there is none to speak of."""

    log_prob: Float[Tensor, " M"]  # −inf where the density is zero
    error: Float[Tensor, " M"] | None = None
    unmet: Bool[Tensor, " M"] | None = None  # which did not meet the tolerance
    within_reach: Float[Tensor, " M"] | None = None  # counting only mass that the proposal can draw


Prior = Callable[[Tensor, Report], PriorScores]


def standard_normal(z: Float[Tensor, "M L"], report: Report = silent) -> PriorScores:
    """The Gaussian prior of a plain VAE."""
    report("latents", len(z), len(z))
    return PriorScores(log_standard_normal(z.double()))


def proposal_prior(model: AEM) -> Prior:
    """The AEM's proposal: ResMADE with a mixture of Gaussians."""

    @torch.no_grad()
    def score(z: Tensor, report: Report = silent) -> PriorScores:
        parts, count = [], counting(report, "latents", len(z))
        for some in z.split(BLOCK[z.device.type]):
            parts.append(log_proposal(model, some).double())
            count(len(some))
        return PriorScores(torch.cat(parts))

    return score


def quadrature_prior(model: AEM, settings: Quadrature) -> Prior:
    """The AEM with computed normalisers.

    Where a literal energy's normaliser is infinite the density is zero: a finite p̃ over an infinite
    Z. Importance sampling does not notice.
    """
    distribution, exact = model(), model.in_double()

    def score(z: Tensor, report: Report = silent) -> PriorScores:
        parts, count = [], counting(report, "latents", len(z))
        for some in z.split(BLOCK[z.device.type]):
            exists = ~without_density(exact, some)
            scores = distribution.scores(some[exists], settings)
            parts.append(
                (
                    by_row(scores.log_prob.sum(-1), exists, -torch.inf),
                    by_row(scores.error.sum(-1), exists, 0.0),
                    by_row(~scores.converged.all(-1), exists, False),
                    by_row(scores.within_reach, exists, -torch.inf),
                )
            )
            count(len(some))
        return PriorScores(*map(torch.cat, zip(*parts, strict=True)))

    return score


def importance_prior(model: AEM, samples: int, *, seed: int = 0, memory: int = MEMORY) -> Prior:
    """The AEM as published: normalisers estimated with S draws of the proposal.

    The error is the bias of a logarithm of an estimate: scores are too high by about that much.
    """

    def score(z: Tensor, report: Report = silent) -> PriorScores:
        scores = importance_scores(
            model, z, samples=samples, seed=seed, memory=memory, report=report
        )
        return PriorScores(scores.log_prob.sum(-1), scores.bias.sum(-1))

    return score


def kde_prior(model: AEM, kde: KDE, *, memory: int = MEMORY) -> Prior:
    """AEM-KDE: a normalised stand-in for the AEM."""

    def score(z: Tensor, report: Report = silent) -> PriorScores:
        return PriorScores(kde.log_prob(model, z, memory=memory, report=report).sum(-1))

    return score


def log_standard_normal(z: Float[Tensor, "*B L"]) -> Float[Tensor, "*B"]:
    """The Gaussian prior."""
    return (-0.5 * z.square() - LOG_ROOT_2PI).sum(-1)


def log_proposal(prior: AEM, z: Float[Tensor, "*B L"]) -> Float[Tensor, "*B"]:
    """An AEM's proposal as a prior, differentiable in the latents and in its own parameters."""
    rows = prior.standardise(z.flatten(0, -2))
    log_q = prior.conditionals(rows).proposal.log_prob_of(rows).sum(-1)
    return (log_q - prior.standardisation.scale.log().sum()).reshape(z.shape[:-1])


def log_prior(prior: AEM | None, z: Float[Tensor, "*B L"]) -> Float[Tensor, "*B"]:
    """The learnt prior's proposal, or the standard normal where there is none."""
    return log_standard_normal(z) if prior is None else log_proposal(prior, z)
