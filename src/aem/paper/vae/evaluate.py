"""The paper's table 2: ELBO and importance-weighted bound of images under every prior.

The latents are drawn once and every prior scores the same ones. A prior that takes long may score
fewer images, the first of a random order; what it makes of all of them is then estimated from the
proposal, which has seen all, and the difference between the two on those both have seen. Slow scores
are kept in files as they come: a run that was stopped goes on with the next block.

Errors are carried along: if each log density may be wrong by e, the ELBO may by the mean of e over an
image's draws, and the bound, to first order, by the mean weighted by their importance.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.devices import cudnn
from aem.base.progress import Report, named, silent
from aem.conditionals.normalizer import Quadrature
from aem.evaluation.kde import KDE, fit_kde
from aem.evaluation.resumable import Columns, Fingerprint, accumulate, remember
from aem.evaluation.summary import mean_and_two_se, whole_split
from aem.model.aem import AEM
from aem.paper.vae.binarise import fixed_binarisation
from aem.paper.vae.config import EvaluationConfig
from aem.paper.vae.images import Images
from aem.paper.vae.latents import aggregate_posterior
from aem.paper.vae.networks import ConvolutionalVae
from aem.vae.bounds import Bounds, Draws, bounds_under, draw_posterior
from aem.vae.files import digest
from aem.vae.priors import (
    Prior,
    PriorScores,
    importance_prior,
    kde_prior,
    proposal_prior,
    quadrature_prior,
    standard_normal,
)

TEST_SEED = 2  # seed of the binarisation of scored images
ORDER_SEED = (
    3  # of their order: MNIST's own is not random, its first test images are the neater ones
)
MEMORY = {"cpu": 2**26, "cuda": 2**32}  # bytes of memory for importance sampling and AEM-KDE
QUADRATURE_MEMORY = {"cpu": 2**28, "cuda": 2**34}
ENERGIES = {"cpu": 2**18, "cuda": 2**26}  # energies per block, between two checks of the time
QUADRATURE_NODES = 400  # approximate nodes per conditional of energies without Fourier features
BASELINE = "proposal"


def full_precision() -> AbstractContextManager[None]:
    """No TF32 in convolutions: its rounding adds up over a thousand pixels."""
    return cudnn("allow_tf32", False)


def summary(bounds: Bounds, baseline: Bounds | None = None) -> dict[str, Any]:
    """Return bounds as plain numbers for a result file.

    Parameters
    ----------
    bounds
        bounds of images under one prior.
    baseline
        those of the same images under another, to which differences are given.
    """
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
            ("elbo", bounds.elbo, baseline.elbo),
            ("log_prob", bounds.bound, baseline.bound),
        ):
            difference = mean_and_two_se(ours - theirs[:n])
            record[f"{name}_over_proposal"], record[f"{name}_over_proposal_2se"] = difference
            if n < len(theirs):
                whole = _whole_split(ours, theirs)
                record[f"{name}_whole_split"], record[f"{name}_whole_split_2se"] = whole
    return record


def _whole_split(
    ours: Float[Tensor, " n"], theirs: Float[Tensor, " N"]
) -> tuple[float | None, float | None]:
    """The bound over N images of a prior that has seen the first n; None where it is not finite."""
    beside = theirs[: len(ours)]
    if len(ours) < 2 or not bool((ours - beside).isfinite().all()):
        return None, None
    return whole_split(ours, beside, theirs)


class PriorScoring:
    """Scores prior after prior on the same draws; `records` grows as they come.

    Parameters
    ----------
    vae
        encoder and decoder.
    images
        grey images; which split is scored the settings say.
    config
        how the bounds are computed.
    folder
        where slow scores are kept between runs.
    report
        called as `report(what, done, total)` while the work goes on.
    finished
        called with all records after each prior.
    """

    def __init__(
        self,
        vae: ConvolutionalVae,
        images: Images,
        config: EvaluationConfig,
        folder: Path,
        report: Report = silent,
        finished: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self.vae, self.images, self.config, self.folder = vae, images, config, folder
        self.report, self.finished = report, finished
        self.device = images.test.device
        self.records: dict[str, dict[str, Any]] = {}
        self.baseline: Bounds | None = None
        self.draws = self._draw(vae)
        self.fingerprint: Fingerprint = {
            "vae": digest(vae.state_dict()),
            "device": self.device.type,
            **{key: getattr(config, key) for key in ("split", "samples", "images", "seed")},
        }

    def _draw(self, vae: ConvolutionalVae) -> Draws:
        split = self.images.test if self.config.split == "test" else self.images.validation
        order = torch.randperm(len(split), generator=torch.Generator().manual_seed(ORDER_SEED))
        chosen = order[: self.config.images].to(split.device)
        x = fixed_binarisation(split, TEST_SEED)[chosen, None]
        generator = torch.Generator(x.device).manual_seed(self.config.seed)
        with full_precision():
            return draw_posterior(vae, x, self.config.samples, generator, self.report)

    def quick(self, name: str, prior: Prior, draws: Draws | None = None) -> Bounds:
        """Score all draws under a prior and keep the record.

        Parameters
        ----------
        name
            what the record is called.
        prior
            a function that scores latents.
        draws
            latents of the images; those that all priors share without any.
        """
        draws = self.draws if draws is None else draws
        z = draws.z.flatten(0, 1)
        started = time.monotonic()
        bounds = bounds_under(draws, prior(z, named(self.report, name)))
        self._keep(name, bounds, seconds=round(time.monotonic() - started, 2))
        return bounds

    def slow(
        self,
        name: str,
        priors: Callable[[int], Prior],
        images: int,
        nodes: int,
        model: AEM,
        **about: Any,
    ) -> Bounds:
        """Score the first images' draws, a block at a time, until all are done or time is up.

        Parameters
        ----------
        name
            what the record is called.
        priors
            makes the prior of a block from the number of its first latent vector, so that what a
            prior draws at random is other for every block, and the same after a new start.
        images
            how many images, at most.
        nodes
            evaluations of the energy per conditional, which the size of a block follows from.
        model
            the AEM that all these priors are made of.
        about
            further entries of the record.
        """
        draws = self.draws.first(images)
        energies = ENERGIES[self.device.type] // (nodes * model.config.features)
        block = max(energies // self.config.samples, 1) * self.config.samples

        def compute(z: Tensor, first: int) -> Columns:
            started = time.monotonic()
            scores = priors(first)(z, silent)
            none = torch.zeros_like(scores.log_prob)
            found = {
                "log_prob": scores.log_prob.cpu(),
                "error": none if scores.error is None else scores.error,
                "unmet": none if scores.unmet is None else scores.unmet,
            }
            if scores.within_reach is not None:
                found["within_reach"] = scores.within_reach
            spent = (time.monotonic() - started) / len(z)
            return {**found, "seconds": torch.full_like(none, spent)}

        columns = accumulate(
            self.folder / f"{name}.safetensors",
            {**self.fingerprint, "prior": digest(model.state_dict()), **about},
            draws.z.flatten(0, 1),
            compute,
            block=block,
            seconds=self.config.seconds,
            report=self.report,
            what=name,
        )
        log_prob, error, unmet = (
            columns[key].to(self.device) for key in ("log_prob", "error", "unmet")
        )
        self.report(name, len(log_prob), len(log_prob))  # that was all, even if time ran out
        done = draws.first(len(log_prob) // self.config.samples)
        bounds = bounds_under(done, PriorScores(log_prob, error, unmet.bool()))
        if "within_reach" in columns and model.config.energy == "literal":
            # Mass out there is real, but importance sampling does not see it.
            reached = bounds_under(done, PriorScores(columns["within_reach"].to(self.device)))
            for key, values in (("elbo", reached.elbo), ("log_prob", reached.bound)):
                about[f"{key}_within_reach"] = mean_and_two_se(values)[0]
        self._keep(name, bounds, **about, seconds=round(float(columns["seconds"].sum()), 2))
        return bounds

    def _keep(self, name: str, bounds: Bounds, **about: Any) -> None:
        self.records[name] = {**summary(bounds, self.baseline), **about}
        self.finished(self.records)

    def trained_priors(
        self, *, joint: AEM | None = None, stage_one: ConvolutionalVae | None = None
    ) -> None:
        """Score the priors that encoder and decoder were trained with, known before an AEM is fitted.

        After a joint stage the Gaussian belongs to the encoder and decoder that were trained with
        it, those of stage one.

        Parameters
        ----------
        joint
            the prior of the joint stage; None if there was none.
        stage_one
            encoder and decoder of stage one, after a joint stage.
        """
        self.quick(
            "gaussian", standard_normal, None if stage_one is None else self._draw(stage_one)
        )
        if joint is not None:
            self.quick("joint", proposal_prior(joint))

    def fitted_priors(self, model: AEM) -> None:
        """Score the proposal, and the AEM in its three forms.

        Parameters
        ----------
        model
            the AEM of the latents.
        """
        config, kind = self.config, self.device.type
        self.baseline = self.quick(BASELINE, proposal_prior(model))
        if config.quadrature_images:
            settings = Quadrature(tolerance=config.tolerance, memory=QUADRATURE_MEMORY[kind])
            exact = quadrature_prior(model, settings)
            self.slow(
                "quadrature",
                lambda _: exact,
                config.quadrature_images,
                QUADRATURE_NODES,
                model,
                tolerance=config.tolerance,
            )
        if config.importance_images:
            samples = config.importance_samples
            self.slow(
                "importance",
                lambda first: importance_prior(
                    model, samples, seed=config.seed + first, memory=MEMORY[kind]
                ),
                config.importance_images,
                samples,
                model,
                samples=samples,
            )
        if config.kde_images:
            kde = self.fit_kde(model)
            smoothed = kde_prior(model, kde, memory=MEMORY[kind])
            self.slow(
                "kde",
                lambda _: smoothed,
                config.kde_images,
                kde.samples,
                model,
                samples=kde.samples,
                bandwidth=kde.bandwidth,
                proposal_weight=kde.proposal_weight,
            )

    def fit_kde(self, model: AEM) -> KDE:
        """Choose bandwidth and mixing weight of AEM-KDE on latents of validation images.

        Parameters
        ----------
        model
            the AEM of the latents.
        """
        config = self.config

        def fit() -> dict[str, Any]:
            with full_precision():
                rows = aggregate_posterior(
                    self.vae, self.images.validation[: config.kde_fit_images]
                )(config.seed)
            memory = MEMORY[rows.device.type]
            return asdict(
                fit_kde(model, rows, samples=config.kde_samples, memory=memory, report=self.report)
            )

        fingerprint: Fingerprint = {
            "vae": self.fingerprint["vae"],
            "prior": digest(model.state_dict()),
            "samples": config.kde_samples,
            "images": config.kde_fit_images,
            "seed": config.seed,
        }
        return KDE(**remember(self.folder / "kernels.json", fingerprint, fit))
