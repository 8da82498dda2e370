"""Section 5.2 of the paper: the error of importance sampling of log Z, by the number of samples.

1,000 conditionals are drawn from held-out rows, each of a random dimension but the first, whose
conditional is the same for every row. Their log Z is computed by a rule that shares nothing with the
estimators (`aem.paper.studies.trapezoid`), and estimated with S samples, independent as in the paper
and stratified.

The paper plots the relative error (log Ẑ − log Z) / |log Z|. It has no meaning where log Z is near
zero, so the difference in nats is shown as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.base.progress import Report, silent
from aem.conditionals.batch import Conditionals
from aem.conditionals.normalizer import Quadrature, nodes_within, normalizer
from aem.errors import AemError
from aem.evaluation.importance import MEMORY, random_uniforms, ranges
from aem.model.aem import AEM
from aem.paper.studies.trapezoid import trapezoid_log_z

SAMPLES = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
CONDITIONALS = 1000
QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
KINDS = ("iid", "stratified")
TRAPEZOID_ERROR = 1e-7  # what seven figures leave open


@dataclass(frozen=True)
class CalibrationStudy:
    """The size of the study; the defaults are the paper's.

    Parameters
    ----------
    conditionals
        how many conditionals are drawn.
    samples
        the numbers S of samples that estimates are made with.
    """

    conditionals: int = CONDITIONALS
    samples: tuple[int, ...] = SAMPLES

    def __post_init__(self) -> None:
        if self.conditionals < 1 or not self.samples or min(self.samples) < 1:
            raise AemError("calibration needs at least one conditional and one sample")


@dataclass(frozen=True)
class Spread:
    """The errors of N estimates with S samples.

    Parameters
    ----------
    kind
        one of `KINDS`.
    samples
        S, the number of samples of each estimate.
    difference
        log Ẑ − log Z in nats: quantiles and mean.
    relative
        the same divided by |log Z|: quantiles.
    absolute
        |log Ẑ − log Z|: quantiles.
    """

    kind: str
    samples: int
    difference: dict[str, float]
    relative: dict[str, float]
    absolute: dict[str, float]


@dataclass(frozen=True)
class Agreement:
    """How the library's quadrature compares with the trapezoid rule.

    Parameters
    ----------
    within_error
        share of the conditionals that differ by no more than the error stated.
    median
        median of the absolute difference, in nats.
    largest
        largest absolute difference, in nats.
    mean_nodes
        evaluations of the energy per conditional by the quadrature.
    mean_trapezoid_steps
        those by the trapezoid rule.
    """

    within_error: float
    median: float
    largest: float
    mean_nodes: float
    mean_trapezoid_steps: float


@dataclass(frozen=True)
class Calibration:
    """The results of the study for one model.

    Parameters
    ----------
    conditionals
        how many conditionals were compared.
    log_z
        quantiles of the true log Z.
    divergent
        how many of those drawn were left out because their Z is infinite (literal energy).
    unsettled
        trapezoid sums that did not reach seven figures.
    edges
        conditionals that have mass at the end of the window.
    spreads
        how estimates lie around the truth, by kind and number of samples.
    quadrature
        how the library's quadrature compares.
    """

    conditionals: int
    log_z: dict[str, float]
    divergent: int
    unsettled: int
    edges: int
    spreads: list[Spread]
    quadrature: Agreement


def choose_conditionals(
    model: AEM, rows: NDArray[np.floating], count: int, seed: int
) -> Conditionals:
    """Choose conditionals p(x_d | x_<d), d > 1, of rows drawn with replacement; float64, flat.

    Parameters
    ----------
    model
        a model of two columns at least, without a context.
    rows
        held-out rows [B, D].
    count
        how many conditionals.
    seed
        decides which rows and columns.
    """
    features = model.config.features
    if model.config.context_features:
        raise AemError("this model needs a context, and calibration studies models without one")
    if features < 2:
        raise AemError("calibration leaves the first column out, so the model needs two or more")
    if not len(rows):
        raise AemError("calibration needs held-out rows")
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(rows), size=count)
    dimension = rng.integers(1, features, size=count)
    double = model.in_double()
    device = double.device
    z = double.standardise(torch.from_numpy(rows[chosen].astype(np.float64)).to(device))
    index = torch.from_numpy(np.arange(count) * features + dimension).to(device)
    with torch.no_grad():
        return double.conditionals(z).flatten().select(index)


def calibrate(
    model: AEM,
    rows: NDArray[np.floating],
    study: CalibrationStudy | None = None,
    *,
    seed: int = 0,
    report: Report = silent,
) -> Calibration:
    """Compare estimates of log Z with its value on conditionals of held-out rows.

    Parameters
    ----------
    model
        a model of two columns at least, without a context.
    rows
        held-out rows [B, D].
    study
        the size of the study; the paper's without one.
    seed
        decides conditionals and draws.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    study = study or CalibrationStudy()
    conditionals, samples = study.conditionals, study.samples
    flat = choose_conditionals(model, rows, conditionals, seed)
    report("quadrature", 0, conditionals)
    settings = Quadrature()
    with torch.no_grad():
        computed = normalizer(flat, settings, tolerance=settings.tolerance / model.config.features)
    report("quadrature", conditionals, conditionals)
    exists = computed.log_z.isfinite().nonzero()[:, 0]
    if not len(exists):
        raise AemError("the normaliser of every conditional diverges: there is no true value")
    flat, kept = flat.select(exists), len(exists)
    truth = trapezoid_log_z(flat, report=report)
    off = (computed.log_z[exists] - truth.log_z).abs()
    allowed = computed.error[exists] + TRAPEZOID_ERROR * truth.log_z.abs().clamp_min(1.0)
    agreement = Agreement(
        float((off <= allowed).double().mean()),
        float(off.median()),
        float(off.max()),
        float(computed.nodes[exists].double().mean()),
        float(truth.steps.double().mean()),
    )
    generator = torch.Generator(truth.log_z.device).manual_seed(seed)
    spreads = []
    for kind in KINDS:
        estimates = _estimates(flat, samples, kind, generator, report)
        for s, log_z in zip(samples, estimates, strict=True):
            difference = (log_z - truth.log_z).cpu().numpy()
            relative = difference / truth.log_z.abs().cpu().numpy()
            spreads.append(
                Spread(
                    kind,
                    s,
                    {**quantiles(difference), "mean": float(difference.mean())},
                    quantiles(relative),
                    quantiles(np.abs(difference)),
                )
            )
    return Calibration(
        kept,
        quantiles(truth.log_z.cpu().numpy()),
        conditionals - kept,
        int((~truth.converged).sum()),
        int(truth.edge.sum()),
        spreads,
        agreement,
    )


def quantiles(values: NDArray[np.floating]) -> dict[str, float]:
    """Return the five quantiles of a box plot, with whiskers at 5 % and 95 %.

    Parameters
    ----------
    values
        any numbers.
    """
    return {name: float(np.quantile(values, q)) for name, q in QUANTILES.items()}


@torch.no_grad()
def _estimates(
    conditionals: Conditionals,
    samples: Sequence[int],
    kind: str,
    generator: torch.Generator,
    report: Report,
) -> list[Float[Tensor, " N"]]:
    """log Ẑ for every S. iid estimates share their draws: the first S of the longest list."""
    n = len(conditionals.projected)
    stratified = kind == "stratified"
    lists = [[s] for s in sorted(samples)] if stratified else [sorted(samples)]
    total = sum(marks[-1] for marks in lists)
    found: dict[int, list[Tensor]] = {s: [] for s in samples}
    fits = nodes_within(MEMORY, conditionals)
    width = max(fits // 256, 1)
    for block in ranges(n, width):
        index = torch.arange(block.start, block.stop, device=conditionals.projected.device)
        some = conditionals.select(index)
        for marks in lists:
            log_sum = torch.full_like(some.proposal.batch, -torch.inf)
            start = 0
            for mark in marks:
                for piece in ranges(mark - start, max(fits // len(index), 1)):
                    nodes = range(start + piece.start, start + piece.stop)
                    u = random_uniforms(
                        len(index), nodes, mark, stratified=stratified, generator=generator
                    )
                    log_w = some.log_weight(some.proposal.transport(u))
                    log_sum = torch.logaddexp(log_sum, log_w.logsumexp(-1))
                start = mark
                found[mark].append(log_sum - math.log(mark))
        report(f"{kind} samples", block.stop * total, n * total)
    return [torch.cat(found[s]) for s in samples]
