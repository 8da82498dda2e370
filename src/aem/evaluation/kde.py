"""AEM-KDE: a kernel density estimate of the AEM that is normalised without any integral.

For each conditional, S proposal draws y_s with normalised importance weights w̄_s carry Gaussian
kernels of bandwidth h, and the proposal covers the rest:

    p_kde(x_d) = α q(x_d) + (1 − α) Σ_s w̄_s N(x_d; y_s, h²)

Each part integrates to one over x_d, so p_kde does too, whatever the energy: its mean
log-likelihood is that of a true density. To make it *one* density, a function of the row alone,
every row uses the same S uniforms for feature d; the draws differ because the proposals do.

h (in standard deviations of the column, shared by all conditionals) and α are fitted on validation
rows. For a given h the likelihood is concave in α, so α is found by bisection of its derivative; h
comes from a grid, then from a finer one around its best point.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.progress import Report, counting, named, part_of, silent
from aem.conditionals.batch import Conditionals
from aem.conditionals.normalizer import nodes_within
from aem.conditionals.proposals.base import LOG_ROOT_2PI
from aem.errors import AemError
from aem.evaluation.importance import (
    MEMORY,
    by_conditionals,
    random_uniforms,
    ranges,
    rows_within,
)
from aem.model.aem import AEM

SAMPLES = 1000
COARSE = tuple(2.0**-k for k in range(15))  # 1 … 6e-5 standard deviations
FINE = tuple(2.0 ** (k / 4) for k in range(-3, 4))  # around the best coarse one
BISECTIONS = 50


@dataclass(frozen=True)
class KDE:
    """The fitted parameters of an AEM-KDE, and those that determine its draws.

    Parameters
    ----------
    bandwidth
        h, standard deviation of each kernel, in units of the standardised column.
    proposal_weight
        α, the share of the proposal in the density.
    samples
        S, kernels per conditional.
    stratified
        whether the kernels' uniforms lie one in each of S strata, or are independent.
    seed
        seed of those uniforms, which all rows share.
    """

    bandwidth: float
    proposal_weight: float
    samples: int = SAMPLES
    stratified: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise AemError(f"AEM-KDE needs at least one sample, not {self.samples}")
        if not self.bandwidth > 0:
            raise AemError(f"the bandwidth must be positive, not {self.bandwidth}")
        if not 0 <= self.proposal_weight <= 1:
            raise AemError(f"the proposal's weight must lie in [0, 1], not {self.proposal_weight}")

    def log_prob(
        self,
        model: AEM,
        x: Float[Tensor, "B D"],
        *,
        memory: int = MEMORY,
        report: Report = silent,
    ) -> Float[Tensor, "B D"]:
        """Return the log density of each conditional of each row, in the units of the data (float64).

        Parameters
        ----------
        model
            the model whose draws carry the kernels.
        x
            rows in the units of the data, on the model's device.
        memory
            bytes that may be held at a time.
        report
            called as `report(what, done, total)` while the work goes on.
        """
        log_q, log_k = log_components(
            model,
            x,
            bandwidths=(self.bandwidth,),
            samples=self.samples,
            stratified=self.stratified,
            seed=self.seed,
            memory=memory,
            report=report,
        )
        return mix(log_q, log_k[0], self.proposal_weight)


def mix(log_q: Tensor, log_k: Tensor, proposal_weight: float) -> Tensor:
    """Return log(α q + (1 − α) k).

    Parameters
    ----------
    log_q
        log density of the proposal.
    log_k
        log density of the kernels.
    proposal_weight
        α, in [0, 1].
    """
    alpha = torch.tensor(proposal_weight, dtype=log_q.dtype, device=log_q.device)
    return torch.logaddexp(alpha.log() + log_q, torch.log1p(-alpha) + log_k)


@torch.no_grad()
def log_components(
    model: AEM,
    x: Float[Tensor, "B D"],
    *,
    bandwidths: Sequence[float],
    samples: int = SAMPLES,
    stratified: bool = True,
    seed: int = 0,
    memory: int = MEMORY,
    report: Report = silent,
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "M B D"]]:
    """Return the log densities that an AEM-KDE mixes, from one pass over the nodes.

    Energies dominate the cost, and several bandwidths cost little more than one.

    Parameters
    ----------
    model
        the model whose draws carry the kernels.
    x
        rows in the units of the data, on the model's device.
    bandwidths
        M bandwidths h, in units of the standardised columns.
    samples
        S, kernels per conditional.
    stratified
        whether the kernels' uniforms lie one in each of S strata, or are independent.
    seed
        seed of those uniforms, which all rows share.
    memory
        bytes that may be held at a time.
    report
        called as `report(what, done, total)` while the work goes on.

    Returns
    -------
    log_q : tensor [B, D]
        log density of the proposal.
    log_k : tensor [M, B, D]
        log of the kernel sum at each bandwidth.
    """
    like, d = model.standardisation.shift, x.shape[1]
    uniforms = random_uniforms(
        d,
        range(samples),
        samples,
        stratified=stratified,
        generator=torch.Generator().manual_seed(seed),
    ).to(like)
    uniforms = uniforms.clamp(max=1 - torch.finfo(like.dtype).eps / 2)

    def score(z: Tensor, flat: Conditionals, _: int) -> tuple[Tensor, Tensor]:
        point = z.reshape(-1, 1)
        log_q = flat.proposal.log_prob_of(z.flatten()).double().reshape(z.shape)
        n = len(point)
        total = z.new_full((n,), -torch.inf, dtype=torch.float64)
        sums = z.new_full((len(bandwidths), n), -torch.inf, dtype=torch.float64)
        for nodes in ranges(samples, max(nodes_within(memory, flat) // n, 1)):
            u = uniforms[:, nodes.start : nodes.stop]
            y = flat.proposal.transport(u.expand(len(z), *u.shape).reshape(n, -1))
            log_w = flat.log_weight(y)
            total = torch.logaddexp(total, log_w.logsumexp(-1).double())
            distance = 0.5 * (point - y).square()
            for m, h in enumerate(bandwidths):
                near = (log_w - distance / h**2).logsumexp(-1).double()
                sums[m] = torch.logaddexp(sums[m], near)
        widths = torch.tensor(bandwidths, dtype=torch.float64, device=z.device)
        kernels = sums - total - widths.log()[:, None] - LOG_ROOT_2PI
        return log_q, kernels.reshape(len(bandwidths), *z.shape)

    count = counting(report, "AEM-KDE", len(x))
    parts = by_conditionals(score, model, x, rows_within(memory, model, samples), count)
    none = like.new_empty((len(bandwidths), 0, d), dtype=torch.float64)
    log_q, log_k = zip((none[0], none), *parts, strict=True)
    log_slope = -model.standardisation.scale.double().log()
    return torch.cat(log_q) + log_slope, torch.cat(log_k, 1) + log_slope


def best_proposal_weight(log_q: Float[Tensor, " N"], log_k: Float[Tensor, " N"]) -> float:
    """Return the α ≥ 1 / (N + 1) that maximises the mean of log(α q + (1 − α) k).

    N validation values cannot show a smaller share of values far from all kernels, and without the
    lower bound a single such test value could have a density of zero.

    Parameters
    ----------
    log_q
        log densities of the proposal at N validation values.
    log_k
        log densities of the kernels there.
    """
    ratio = log_k - log_q
    ratio = ratio[~ratio.isnan()]  # impossible under both: no α helps
    small = torch.exp(-ratio.abs())
    kernel_wins = ratio > 0
    low, high = 1 / (len(log_q) + 1), 1.0
    if not len(ratio):
        return high
    for _ in range(BISECTIONS):
        alpha = 0.5 * (low + high)
        # d/dα log(α + (1 − α) r), written with whichever of r and 1/r is below one.
        slope = torch.where(
            kernel_wins,
            (small - 1) / (alpha * small + (1 - alpha)),
            (1 - small) / (alpha + (1 - alpha) * small),
        ).mean()
        if bool(slope > 0):
            low = alpha
        else:
            high = alpha
    return 0.5 * (low + high)


def fit_kde(
    model: AEM,
    validation: Float[Tensor, "B D"],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    memory: int = MEMORY,
    report: Report = silent,
) -> KDE:
    """Find the bandwidth and the proposal's weight of greatest validation likelihood.

    There are two passes: one for a coarse grid of bandwidths, one for a finer grid around its best.

    Parameters
    ----------
    model
        the model whose draws carry the kernels.
    validation
        rows in the units of the data that the model was not trained on.
    samples
        S, kernels per conditional.
    seed
        seed of those uniforms, which all rows share.
    memory
        bytes that may be held at a time.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    if not len(validation):
        raise AemError("AEM-KDE needs validation rows to fit its bandwidth")
    best, best_score = KDE(1.0, 1.0, samples, seed=seed), -math.inf

    def look(bandwidths: Sequence[float], time: int) -> None:
        nonlocal best, best_score
        log_q, log_k = log_components(
            model,
            validation,
            bandwidths=bandwidths,
            samples=samples,
            seed=seed,
            memory=memory,
            report=named(part_of(report, time, 2), "fitting AEM-KDE"),
        )
        for h, kernels in zip(bandwidths, log_k, strict=True):
            alpha = best_proposal_weight(log_q.flatten(), kernels.flatten())
            mixed = mix(log_q, kernels, alpha)
            score = float(mixed[mixed > -torch.inf].sum())
            if score > best_score:
                best, best_score = KDE(h, alpha, samples, seed=seed), score

    look(COARSE, 0)
    look([best.bandwidth * factor for factor in FINE if factor != 1.0], 1)
    return best
