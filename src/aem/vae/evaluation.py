"""The paper's table 2: ELBO and importance-weighted bound of images under every prior.

The latents are drawn once and every prior scores the same ones; a prior that takes long may score
fewer images, and is then compared with the proposal on these. Errors are carried along: if each log
density may be wrong by e, the ELBO may by the mean of e over an image's draws, and the bound, to first
order, by the mean weighted by their importance.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.evaluation import Report, silent
from aem.importance import Watch
from aem.kde import KDE, fit_kde
from aem.model import AEM
from aem.normalizers import Quadrature
from aem.vae.binarise import fixed_binarisation
from aem.vae.bounds import Draws, draw_posterior, elbo, importance_bound
from aem.vae.config import EvaluationConfig
from aem.vae.images import Images
from aem.vae.latents import aggregate_posterior
from aem.vae.networks import ConvolutionalVae
from aem.vae.priors import (
    Prior,
    PriorScores,
    importance_prior,
    kde_prior,
    proposal_prior,
    quadrature_prior,
    standard_normal,
)

TEST_SEED = 2  # of the scored images' binarisation
MEMORY = {"cpu": 2**26, "cuda": 2**32}  # bytes importance sampling and AEM-KDE may work with
QUADRATURE_MEMORY = {"cpu": 2**28, "cuda": 2**34}
BASELINE = "proposal"


@dataclass(frozen=True)
class Bounds:
    """ELBO and bound of N images under one prior, with the error each may have."""

    elbo: Float[Tensor, " N"]
    bound: Float[Tensor, " N"]
    kl: Float[Tensor, " N"]
    elbo_error: float
    bound_error: float
    unmet: int  # latents scored less accurately than asked for
    impossible: int  # latents of density zero; one makes an image's ELBO −inf, not its bound


@contextmanager
def full_precision() -> Iterator[None]:
    """No TF32 in convolutions: its rounding adds up over a thousand pixels."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def bounds_under(draws: Draws, scores: PriorScores) -> Bounds:
    """Put a prior's scores of all draws, in their order, into the bounds."""
    shape = draws.log_likelihood.shape
    log_prior = scores.log_prob.reshape(shape)
    log_w = draws.log_weights(log_prior)
    elbo_error = bound_error = 0.0
    if scores.error is not None:
        error = scores.error.reshape(shape).double()
        elbo_error = float(error.mean())
        # An image whose draws all have density zero has no weights.
        bound_error = float((error * log_w.softmax(1).nan_to_num(0.0)).sum(1).mean())
    return Bounds(
        elbo(log_w),
        importance_bound(log_w),
        draws.kl(log_prior),
        elbo_error,
        bound_error,
        scores.unmet,
        int(log_prior.isneginf().sum()),
    )


def mean_and_two_se(values: Float[Tensor, " N"]) -> tuple[float | None, float | None]:
    """The mean and twice its standard error, which one value does not have.

    JSON has no infinity: a mean of −inf is None.
    """
    x: NDArray[np.float64] = values.double().cpu().numpy()
    if not np.isfinite(x).all():
        return None, None
    spread = float(2 * x.std(ddof=1) / len(x) ** 0.5) if len(x) > 1 else None
    return float(x.mean()), spread


def summary(bounds: Bounds, baseline: Bounds | None = None) -> dict[str, Any]:
    """Plain numbers for a result file; against the baseline, differences on the same images."""
    record: dict[str, Any] = {"images": len(bounds.elbo)}
    for name, values in (
        ("elbo", bounds.elbo),
        ("log_prob", bounds.bound),
        ("kl", bounds.kl),
    ):
        record[name], record[f"{name}_2se"] = mean_and_two_se(values)
    for name, error in (("elbo", bounds.elbo_error), ("log_prob", bounds.bound_error)):
        record[f"{name}_error"] = error if math.isfinite(error) else None
    if bounds.unmet:
        record["latents_beyond_tolerance"] = bounds.unmet
    if bounds.impossible:
        record["latents_without_density"] = bounds.impossible
    if baseline is not None:
        n = len(bounds.elbo)
        for name, ours, theirs in (
            ("elbo", bounds.elbo, baseline.elbo[:n]),
            ("log_prob", bounds.bound, baseline.bound[:n]),
        ):
            difference = mean_and_two_se(ours - theirs)
            record[f"{name}_over_proposal"], record[f"{name}_over_proposal_2se"] = difference
    return record


class Evaluation:
    """Scores prior after prior on the same draws; `records` grows as they come."""

    def __init__(
        self,
        vae: ConvolutionalVae,
        images: Images,
        config: EvaluationConfig,
        report: Report = silent,
        finished: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self.vae, self.images, self.config = vae, images, config
        self.report, self.finished = report, finished
        self.records: dict[str, dict[str, Any]] = {}
        self.baseline: Bounds | None = None
        with full_precision():
            self.draws = self._draw()

    def _draw(self) -> Draws:
        split = self.images.test if self.config.split == "test" else self.images.validation
        x = fixed_binarisation(split, TEST_SEED)[: self.config.images, None]
        generator = torch.Generator(x.device).manual_seed(self.config.seed)
        watch = _counter(self.report, "drawing latents", len(x))
        return draw_posterior(self.vae, x, self.config.samples, generator, watch)

    def score(self, name: str, prior: Prior, images: int, **about: Any) -> Bounds:
        """Score the first images' draws under a prior and keep the record."""
        draws = self.draws.first(images)
        z = draws.z.flatten(0, 1)
        started = time.monotonic()
        scores = prior(z, _counter(self.report, name, len(z)))
        bounds = bounds_under(draws, scores)
        baseline = None if name in (BASELINE, "gaussian") else self.baseline
        self.records[name] = {
            **summary(bounds, baseline),
            **about,
            "seconds": round(time.monotonic() - started, 2),
        }
        self.finished(self.records)
        return bounds

    def all_priors(self, model: AEM, others: Mapping[str, AEM] | None = None) -> None:
        """The Gaussian, the proposal, the AEM in its three forms, and other proposals beside it."""
        config, kind = self.config, self.images.test.device.type
        everything = config.images
        self.score("gaussian", standard_normal, everything)
        self.baseline = self.score(BASELINE, proposal_prior(model), everything)
        for name, other in (others or {}).items():
            self.score(name, proposal_prior(other), everything)
        if config.quadrature_images:
            settings = Quadrature(tolerance=config.tolerance, memory=QUADRATURE_MEMORY[kind])
            self.score(
                "quadrature",
                quadrature_prior(model, settings),
                config.quadrature_images,
                tolerance=config.tolerance,
            )
        if config.importance_images:
            samples = config.importance_samples
            prior = importance_prior(model, samples, seed=config.seed, memory=MEMORY[kind])
            self.score("importance", prior, config.importance_images, samples=samples)
        if config.kde_images:
            kde = self.fit_kde(model)
            self.score(
                "kde",
                kde_prior(model, kde, memory=MEMORY[kind]),
                config.kde_images,
                samples=kde.samples,
                bandwidth=kde.bandwidth,
                proposal_weight=kde.proposal_weight,
            )

    def fit_kde(self, model: AEM) -> KDE:
        """Bandwidth and mixing weight, chosen on latents of validation images."""
        some = self.images.validation[: self.config.kde_fit_images]
        rows = aggregate_posterior(self.vae, some)(self.config.seed)
        watch = _counter(self.report, "fitting AEM-KDE", 2 * len(rows))
        memory = MEMORY[rows.device.type]
        return fit_kde(model, rows, samples=self.config.kde_samples, memory=memory, watch=watch)


def _counter(report: Report, what: str, total: int) -> Watch:
    done = 0

    def watch(rows: int) -> None:
        nonlocal done
        done += rows
        report(what, done, total)

    return watch
