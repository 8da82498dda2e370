"""One table scored in every way the library knows, side by side.

The quadrature does not only state an error, it is put to the test: everything is computed again,
starting from equal panels that already hold twice the nodes it had used, at a quarter of the
tolerance, until the mean moves by less than a tenth of the error it had claimed. Equal panels look
where the adaptive rule saw nothing to look for. The last figure is reported, and how far it moved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aem.base.checks import check_table
from aem.base.progress import Report, silent
from aem.base.threads import get_threads
from aem.conditionals.normalizer import Quadrature, with_tolerance
from aem.conditionals.quadrature import NODES_PER_PANEL
from aem.errors import AemError
from aem.evaluation.importance import ranges
from aem.evaluation.kde import KDE
from aem.evaluation.kde import SAMPLES as KDE_SAMPLES

STILL = 0.1  # of the claimed error: moving less than this is holding still
MOST_REFINEMENTS = 4
FIT_ROWS = 2000  # validation rows that fit the two numbers of AEM-KDE; more change nothing
SET_ASIDE = 10  # one row in this many fits AEM-KDE where there are no validation data
IMPORTANCE_SAMPLES = 1000


@dataclass(frozen=True)
class Exact:
    """Log densities of rows by quadrature."""

    log_prob: Float[Tensor, " B"]
    error: Float[Tensor, " B"]
    within_reach: Float[Tensor, " B"]  # counting only mass that the proposal can draw
    nodes: Float[Tensor, " B"]  # per conditional


@dataclass(frozen=True)
class Estimate:
    """Log densities of rows with estimated normalisers, and by how much they are too high."""

    log_prob: Float[Tensor, " B"]
    bias: Float[Tensor, " B"]


@runtime_checkable
class Density(Protocol):
    """What is scored side by side; `aem.tables.scores.TableScores` is one."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def device(self) -> torch.device:
        """Where the scores are computed."""

    @property
    def no_kernels(self) -> str | None:
        """Why there is no AEM-KDE, if there is none."""

    def quadrature(self, x: Tensor, settings: Quadrature, /) -> Exact:
        """Log densities with computed normalisers."""

    def proposal(self, x: Tensor, /) -> Tensor:
        """Log densities of the proposal alone."""

    def importance(self, x: Tensor, samples: int, seed: int, report: Report, /) -> Estimate:
        """Log densities with estimated normalisers."""

    def fit_kde(self, validation: Tensor, samples: int, seed: int, report: Report, /) -> list[KDE]:
        """The kernels of AEM-KDE, fitted on validation rows: one for each member of a mixture."""

    def kde(self, kernels: Sequence[KDE], x: Tensor, report: Report, /) -> Tensor:
        """Log densities of AEM-KDE."""


@dataclass(frozen=True)
class Summary:
    """The mean of N log densities, and what a mean hides."""

    mean: float
    two_se: float  # NaN for a single row
    median: float
    worst: float
    worst_row: int
    impossible: int  # rows of density zero; each of them makes the mean −inf
    rows: int


def summarise(values: Float[Tensor, " B"], labels: NDArray[np.int64] | None = None) -> Summary:
    """Summarise log densities; `labels` are the row numbers the user knows the rows by."""
    x = values.double().cpu()
    worst = int(x.argmin())
    spread = float(x.std()) if len(x) > 1 and bool(x.isfinite().all()) else math.nan
    return Summary(
        float(x.mean()),
        2 * spread / math.sqrt(len(x)),
        float(x.quantile(0.5)) if bool(x.isfinite().all()) else float(x.median()),
        float(x[worst]),
        worst if labels is None else int(labels[worst]),
        int((x == -torch.inf).sum()),
        len(x),
    )


@dataclass(frozen=True)
class Settled:
    """Log densities by quadrature after refinement, and how they behaved."""

    log_prob: Float[Tensor, " B"]
    error: Float[Tensor, " B"]
    held_still: bool
    moved: float  # of the mean, at the last refinement, in nats
    claimed: float  # mean error claimed before the last refinement
    worst_move: float  # of a single row
    rows_beyond_error: int  # rows that moved by more than the error they had claimed
    nodes: tuple[float, float]  # per conditional, before and after the last refinement
    refinements: int
    tolerance: float  # of the figures reported
    unmet: NDArray[np.int64]  # rows where the tolerance asked for is not met, even so

    def record(self) -> dict[str, Any]:
        """How they behaved, as results hold it."""
        return {
            "held_still": self.held_still,
            "moved": self.moved,
            "claimed_error_before": self.claimed,
            "largest_move_of_a_row": self.worst_move,
            "rows_that_moved_beyond_their_error": self.rows_beyond_error,
            "nodes_before": self.nodes[0],
            "nodes_after": self.nodes[1],
        }


def _score(density: Density, x: Tensor, settings: Quadrature, report: Report, what: str) -> Exact:
    """Score all rows, some at a time so that there is progress to see."""
    block = 128 * get_threads() if x.device.type == "cpu" else 4096
    parts = []
    for some in ranges(len(x), block):
        parts.append(density.quadrature(x[some.start : some.stop], settings))
        report(what, some.stop, len(x))
    return Exact(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Exact)))


def _mean_nodes(scores: Exact) -> float:
    return float(scores.nodes.mean())


def settle(
    density: Density,
    x: Float[Tensor, "B D"],
    settings: Quadrature | None = None,
    report: Report = silent,
) -> Settled:
    """Score by quadrature, refining until the mean holds still (or four times in vain)."""
    settings = settings or Quadrature()
    asked = settings.tolerance
    before = _score(density, x, settings, report, "quadrature")
    refinements = 0
    while True:
        refinements += 1
        panels = math.ceil(2 * _mean_nodes(before) / NODES_PER_PANEL)
        settings = replace(
            settings,
            tolerance=settings.tolerance / 4,
            # No fewer than before: a flat energy takes no node at all.
            first_panels=max(panels, settings.first_panels),
            max_nodes=2 * settings.max_nodes,
        )
        after = _score(density, x, settings, report, f"quadrature, refinement {refinements}")
        # −inf before and after is no movement, though the difference is not a number.
        both = torch.stack((before.log_prob, after.log_prob))
        same = both[0] == both[1]
        moves = torch.where(same, 0.0, both[1] - both[0])
        moved, claimed = abs(float(moves.mean())), float(before.error.mean())
        still = math.isfinite(claimed) and moved <= STILL * claimed
        if still or refinements == MOST_REFINEMENTS:
            break
        before = after
    return Settled(
        after.log_prob,
        after.error,
        still,
        moved,
        claimed,
        float(moves.abs().max()),
        int((moves.abs() > before.error).sum()),
        (_mean_nodes(before), _mean_nodes(after)),
        refinements,
        settings.tolerance,
        (after.error > asked).nonzero()[:, 0].cpu().numpy(),
    )


@dataclass(frozen=True)
class SideBySide:
    """Every score of the same rows. What was not asked for is None."""

    settled: Settled
    quadrature: Summary
    error: float  # estimated error of the quadrature's mean
    proposal: Summary
    importance: Summary | None
    importance_samples: int
    importance_bias: float | None  # the estimate is too high by about this much
    importance_noise: float | None  # two standard errors of its mean that come from the draws
    kde: Summary | None
    kernels: list[KDE] | None
    kde_fit_rows: int
    set_aside: int  # rows taken from the data to fit AEM-KDE
    truth: Summary | None  # the exact log density, where it is known
    gap: Summary | None  # truth minus quadrature, row by row


def evaluate(
    density: Density,
    data: ArrayLike,
    *,
    validation: ArrayLike | None = None,
    truth: NDArray[np.float64] | None = None,
    labels: NDArray[np.int64] | None = None,
    samples: int = IMPORTANCE_SAMPLES,
    kde_samples: int = KDE_SAMPLES,
    tolerance: float | None = None,
    seed: int = 0,
    report: Report = silent,
) -> SideBySide:
    """Score a table by quadrature, importance sampling, AEM-KDE and the proposal.

    Parameters
    ----------
    density
        what is scored, for instance `TableScores.of(table)`.
    data
        rows; the columns of a data frame are matched by name.
    validation
        rows that fit AEM-KDE. Without any a tenth of the data is set aside for it, and no score
        includes that.
    truth
        the exact log density of the rows, if it is known.
    labels
        the numbers the user knows the rows by.
    samples, kde_samples
        draws per conditional of importance sampling, kernels per conditional of AEM-KDE; 0 means:
        not that score.
    tolerance
        largest error of a row's log density by quadrature, in nats.
    seed
        of everything drawn at random.
    report
        told what is being done, and how far.
    """
    if samples < 0 or kde_samples < 0:
        raise AemError("the number of samples must not be negative")
    device = density.device
    kde_samples = 0 if density.no_kernels else kde_samples
    table = _table(density, data, "data")
    kept = np.arange(len(table))
    fit_rows = None
    set_aside = 0
    if kde_samples and validation is not None:
        fit_rows = _table(density, validation, "validation data")
    elif kde_samples:
        fit_rows, kept = _set_aside(table, seed)
        set_aside = len(fit_rows)
    x = torch.from_numpy(table[kept]).to(device)
    known = kept if labels is None else labels[kept]

    settled = settle(density, x, with_tolerance(Quadrature(), tolerance), report)
    settled = replace(settled, unmet=known[settled.unmet])
    importance = importance_bias = importance_noise = None
    if samples:
        estimated = density.importance(x, samples, seed, report)
        importance = summarise(estimated.log_prob, known)
        importance_bias = float(estimated.bias.mean())
        # The bias is half the variance of log Ẑ, and draws are independent between rows.
        importance_noise = 2 * math.sqrt(2 * importance_bias / len(x))
    kde, kernels = None, None
    fitted_on = 0
    if fit_rows is not None:
        chosen = np.random.default_rng(seed).permutation(len(fit_rows))[:FIT_ROWS]
        some = torch.from_numpy(fit_rows[chosen]).to(device)
        fitted_on = len(some)
        kernels = density.fit_kde(some, kde_samples, seed, report)
        kde = summarise(density.kde(kernels, x, report), known)
    exact = None if truth is None else torch.from_numpy(truth[kept]).to(device)
    return SideBySide(
        settled,
        summarise(settled.log_prob, known),
        float(settled.error.mean()),
        summarise(density.proposal(x), known),
        importance,
        samples,
        importance_bias,
        importance_noise,
        kde,
        kernels,
        fitted_on,
        set_aside,
        None if exact is None else summarise(exact, known),
        None if exact is None else summarise(exact - settled.log_prob, known),
    )


def _table(density: Density, values: ArrayLike, what: str) -> NDArray[np.float64]:
    table = check_table(values, columns=density.columns, features=len(density.columns), what=what)
    if not len(table):
        raise AemError(f"the {what} has no rows")
    return table


def _set_aside(
    table: NDArray[np.float64], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """A tenth of the rows, chosen at random, and the numbers of the others."""
    if len(table) < SET_ASIDE:
        raise AemError(
            f"{len(table)} rows are too few to set some aside for AEM-KDE;"
            " give validation data, or no samples for it"
        )
    order = np.random.default_rng(seed).permutation(len(table))
    count = len(table) // SET_ASIDE
    return table[order[:count]], np.sort(order[count:])
