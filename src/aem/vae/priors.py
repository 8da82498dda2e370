"""Priors of latents: functions that return log densities with errors, and report their progress."""

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
    """Log densities of M latents with their errors, which are None where they are negligible.

    Parameters
    ----------
    log_prob
        log density of each; −inf where the density is zero.
    error
        its estimated error, or bias, in nats.
    unmet
        which latents did not meet the tolerance.
    within_reach
        the log density if only mass that the proposal can draw counted for the normalisers.
    """

    log_prob: Float[Tensor, " M"]
    error: Float[Tensor, " M"] | None = None
    unmet: Bool[Tensor, " M"] | None = None
    within_reach: Float[Tensor, " M"] | None = None


Prior = Callable[[Tensor, Report], PriorScores]


def standard_normal(z: Float[Tensor, "M L"], report: Report = silent) -> PriorScores:
    """Score latents under the Gaussian prior of a plain VAE.

    Parameters
    ----------
    z
        latent vectors in the units that the encoder gives them.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    report("latents", len(z), len(z))
    return PriorScores(log_standard_normal(z.double()))


def proposal_prior(model: AEM) -> Prior:
    """Return the AEM's proposal as a prior: ResMADE with a mixture of Gaussians.

    Parameters
    ----------
    model
        an AEM of the latents.
    """

    @torch.no_grad()
    def score(z: Tensor, report: Report = silent) -> PriorScores:
        parts, count = [], counting(report, "latents", len(z))
        for some in z.split(BLOCK[z.device.type]):
            parts.append(log_proposal(model, some).double())
            count(len(some))
        return PriorScores(torch.cat(parts))

    return score


def quadrature_prior(model: AEM, settings: Quadrature) -> Prior:
    """Return the AEM with normalisers computed by quadrature as a prior.

    Where a literal energy's normaliser is infinite the density is zero: a finite p̃ over an
    infinite Z. Importance sampling does not notice.

    Parameters
    ----------
    model
        an AEM of the latents.
    settings
        how exactly, and with how much memory.
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
    """Return the AEM of the paper as a prior, with normalisers estimated from samples.

    The error is the bias of a logarithm of an estimate: scores are too high by about that much.

    Parameters
    ----------
    model
        an AEM of the latents.
    samples
        S, draws of the proposal per conditional.
    seed
        seed of the draws.
    memory
        bytes that may be held at a time.
    """

    def score(z: Tensor, report: Report = silent) -> PriorScores:
        scores = importance_scores(
            model, z, samples=samples, seed=seed, memory=memory, report=report
        )
        return PriorScores(scores.log_prob.sum(-1), scores.bias.sum(-1))

    return score


def kde_prior(model: AEM, kde: KDE, *, memory: int = MEMORY) -> Prior:
    """Return AEM-KDE, a kernel density estimate of the AEM, as a prior.

    Parameters
    ----------
    model
        an AEM of the latents.
    kde
        bandwidth and proposal weight, as `aem.evaluation.kde.fit_kde` finds them.
    memory
        bytes that may be held at a time.
    """

    def score(z: Tensor, report: Report = silent) -> PriorScores:
        return PriorScores(kde.log_prob(model, z, memory=memory, report=report).sum(-1))

    return score


def log_standard_normal(z: Float[Tensor, "*B L"]) -> Float[Tensor, "*B"]:
    """Return log densities under the Gaussian prior.

    Parameters
    ----------
    z
        latent vectors in the units that the encoder gives them.
    """
    return (-0.5 * z.square() - LOG_ROOT_2PI).sum(-1)


def log_proposal(prior: AEM, z: Float[Tensor, "*B L"]) -> Float[Tensor, "*B"]:
    """Return log densities under an AEM's proposal, differentiable in latents and parameters.

    Parameters
    ----------
    prior
        an AEM of the latents.
    z
        latent vectors in the units that the encoder gives them.
    """
    rows = prior.standardise(z.flatten(0, -2))
    log_q = prior.conditionals(rows).proposal.log_prob_of(rows).sum(-1)
    return (log_q - prior.standardisation.scale.log().sum()).reshape(z.shape[:-1])


def log_prior(prior: AEM | None, z: Float[Tensor, "*B L"]) -> Float[Tensor, "*B"]:
    """Return log densities under a learnt prior's proposal, or under the standard normal.

    Parameters
    ----------
    prior
        an AEM of the latents; None for the standard normal.
    z
        latent vectors in the units that the encoder gives them.
    """
    return log_standard_normal(z) if prior is None else log_proposal(prior, z)
