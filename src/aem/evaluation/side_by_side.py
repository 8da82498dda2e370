"""Several scores of the same rows, side by side, with a test of the quadrature's error.

The quadrature is repeated with twice the nodes, in panels of equal length, and a quarter of the
tolerance, until the mean changes by less than a tenth of its stated error. Panels of equal length
also cover regions where the adaptive rule saw nothing to refine. The last mean is reported with the
change.
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

STILL = 0.1  # fraction of the stated error by which the mean may change
MOST_REFINEMENTS = 4
FIT_ROWS = 2000  # validation rows that AEM-KDE is fitted on; more hardly change its two parameters
SET_ASIDE = 10  # without validation data one row in ten is used to fit AEM-KDE
IMPORTANCE_SAMPLES = 1000


@dataclass(frozen=True)
class Exact:
    """Log densities of B rows by quadrature, in nats.

    Parameters
    ----------
    log_prob
        log density of each row.
    error
        its estimated error.
    within_reach
        the log density if only mass that the proposal can draw counted for the normalisers.
    nodes
        evaluations of the energy per conditional, in the mean over the row's columns.
    """

    log_prob: Float[Tensor, " B"]
    error: Float[Tensor, " B"]
    within_reach: Float[Tensor, " B"]
    nodes: Float[Tensor, " B"]


@dataclass(frozen=True)
class Estimate:
    """Log densities of B rows with estimated normalisers, in nats.

    Parameters
    ----------
    log_prob
        the estimate for each row.
    bias
        approximately how much too high it is on average.
    """

    log_prob: Float[Tensor, " B"]
    bias: Float[Tensor, " B"]


@runtime_checkable
class Density(Protocol):
    """The protocol of densities that can be evaluated, such as `aem.tables.scores.TableScores`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, by which data frames are matched."""

    @property
    def device(self) -> torch.device:
        """The device that rows are moved to and scored on."""

    @property
    def no_kernels(self) -> str | None:
        """A sentence that says why there is no AEM-KDE; None if there is one."""

    def quadrature(self, x: Tensor, settings: Quadrature, /) -> Exact:
        """Compute log densities by quadrature.

        Parameters
        ----------
        x
            rows in the units of the table.
        settings
            how exactly, and with how much memory.
        """

    def proposal(self, x: Tensor, /) -> Tensor:
        """Return log densities of the proposal alone.

        Parameters
        ----------
        x
            rows in the units of the table.
        """

    def importance(self, x: Tensor, samples: int, seed: int, report: Report, /) -> Estimate:
        """Estimate log densities from draws of the proposal.

        Parameters
        ----------
        x
            rows in the units of the table.
        samples
            draws per conditional.
        seed
            seed of the draws.
        report
            called as `report(what, done, total)` while the work goes on.
        """

    def fit_kde(self, validation: Tensor, samples: int, seed: int, report: Report, /) -> list[KDE]:
        """Fit AEM-KDE on validation rows: one `KDE` for each member of a mixture.

        Parameters
        ----------
        validation
            rows in the units of the table.
        samples
            kernels per conditional.
        seed
            seed of the positions of the kernels.
        report
            called as `report(what, done, total)` while the work goes on.
        """

    def kde(self, kernels: Sequence[KDE], x: Tensor, report: Report, /) -> Tensor:
        """Return log densities by AEM-KDE.

        Parameters
        ----------
        kernels
            what `fit_kde` returned.
        x
            rows in the units of the table.
        report
            called as `report(what, done, total)` while the work goes on.
        """


@dataclass(frozen=True)
class Summary:
    """The mean of N log densities with its standard error, the median and the worst row, in nats.

    Parameters
    ----------
    mean
        the mean; −inf if any row is impossible.
    two_se
        twice the standard error of the mean; NaN for a single row.
    median
        median log density, which single rows hardly move.
    worst
        the lowest log density.
    worst_row
        number of the row that has it.
    impossible
        how many rows have density zero.
    rows
        N, how many rows there are.
    """

    mean: float
    two_se: float
    median: float
    worst: float
    worst_row: int
    impossible: int
    rows: int


def summarise(values: Float[Tensor, " B"], labels: NDArray[np.int64] | None = None) -> Summary:
    """Summarise log densities of rows.

    Parameters
    ----------
    values
        one per row.
    labels
        the row numbers that the user knows the rows by; 0, 1, … without any.
    """
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
    """Log densities by quadrature after refinement, and how much refinement changed them.

    Parameters
    ----------
    log_prob
        log density of each row, of the last refinement.
    error
        its estimated error.
    held_still
        whether the quadrature has converged: the last refinement changed the mean by less than a
        tenth of the error stated before.
    moved
        by how much it changed the mean, in nats.
    claimed
        mean error stated before it.
    worst_move
        by how much it changed a single row at most.
    rows_beyond_error
        how many rows it changed by more than their stated error.
    nodes
        evaluations per conditional, before and after it.
    refinements
        how many refinements there were.
    tolerance
        of the last one, in nats per row.
    unmet
        numbers of the rows where the tolerance asked for is not met, even so.
    """

    log_prob: Float[Tensor, " B"]
    error: Float[Tensor, " B"]
    held_still: bool
    moved: float
    claimed: float
    worst_move: float
    rows_beyond_error: int
    nodes: tuple[float, float]
    refinements: int
    tolerance: float
    unmet: NDArray[np.int64]

    def record(self) -> dict[str, Any]:
        """Return the changes by refinement, for result files."""
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
    """Score rows in blocks, to report progress."""
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
    """Score by quadrature, refined until the mean no longer changes, or four times.

    Parameters
    ----------
    density
        what is scored.
    x
        rows in the units of the table, on its device.
    settings
        tolerance, nodes and memory to start with; the defaults of `Quadrature` without any.
    report
        called as `report(what, done, total)` while the work goes on.
    """
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
    """Every score of the same rows. What was not asked for is None.

    Parameters
    ----------
    settled
        the quadrature row by row, and how it behaved when refined.
    quadrature
        summary of the quadrature.
    error
        mean of the errors that the quadrature estimates, in nats.
    proposal
        summary of the proposal alone.
    importance
        summary of importance sampling.
    importance_samples
        draws per conditional that it took.
    importance_bias
        approximately how much too high its mean is.
    importance_noise
        two standard errors of its mean that come from the draws.
    kde
        summary of AEM-KDE.
    kernels
        the fitted AEM-KDE, one for each member of an ensemble.
    kde_fit_rows
        how many rows it was fitted on.
    set_aside
        how many of them were taken from the data.
    truth
        summary of the exact log density, where it is known.
    gap
        summary of truth minus quadrature, row by row.
    """

    settled: Settled
    quadrature: Summary
    error: float
    proposal: Summary
    importance: Summary | None
    importance_samples: int
    importance_bias: float | None
    importance_noise: float | None
    kde: Summary | None
    kernels: list[KDE] | None
    kde_fit_rows: int
    set_aside: int
    truth: Summary | None
    gap: Summary | None


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
        the numbers that the user knows the rows by; 0, 1, … without any.
    samples
        draws per conditional of importance sampling; 0 leaves that score out.
    kde_samples
        kernels per conditional of AEM-KDE; 0 leaves that score out.
    tolerance
        largest error of a row's log density by quadrature, in nats; 1e-3 without one.
    seed
        seed of all random numbers.
    report
        called as `report(what, done, total)` while the work goes on.
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
    """Return a random tenth of the rows, and the numbers of the other rows."""
    if len(table) < SET_ASIDE:
        raise AemError(
            f"{len(table)} rows are too few to set some aside for AEM-KDE;"
            " give validation data, or no samples for it"
        )
    order = np.random.default_rng(seed).permutation(len(table))
    count = len(table) // SET_ASIDE
    return table[order[:count]], np.sort(order[count:])
