"""Scores of rows in blocks that fit into memory, with shared conditionals integrated once."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from aem.base.threads import get_threads, spread
from aem.conditionals.batch import Conditionals, representatives
from aem.conditionals.coordinates import TailedCoordinates, coordinates_for
from aem.conditionals.normalizer import (
    NAMED,
    Normalizer,
    Quadrature,
    normalizer,
    refuse_divergent,
)
from aem.errors import AccuracyWarning, AemError

if TYPE_CHECKING:
    from aem.model.aem import AEM

# Rows per task of a thread: with fewer the overhead dominates, with more the threads do not finish at
# the same time.
FEWEST_TOGETHER, MOST_TOGETHER = 64, 1024

BlockResult = TypeVar("BlockResult")


@dataclass(frozen=True)
class Scores:
    """Log densities of B rows by conditional, with the error of each normaliser.

    Parameters
    ----------
    log_prob
        log p(x_d | x_<d) in the units of the data; their sum is the row's.
    error
        estimated error of each, in nats.
    log_proposal
        the proposal's log q(x_d | x_<d), in the same units.
    log_z
        log normaliser relative to the proposal.
    outside
        share of the normaliser where the proposal never draws.
    nodes
        evaluations that the normaliser took; rows that share a conditional share its nodes.
    converged
        whether the tolerance was met.
    """

    log_prob: Float[Tensor, "B D"]
    error: Float[Tensor, "B D"]
    log_proposal: Float[Tensor, "B D"]
    log_z: Float[Tensor, "B D"]
    outside: Float[Tensor, "B D"]
    nodes: Int[Tensor, "B D"]
    converged: Bool[Tensor, "B D"]

    @property
    def within_reach(self) -> Float[Tensor, " B"]:
        """Log densities of the rows, counting only mass that the proposal can draw."""
        return (self.log_prob - torch.log1p(-self.outside)).sum(-1)

    @staticmethod
    def concatenate(parts: list["Scores"]) -> "Scores":
        """Concatenate the scores of blocks of rows.

        Parameters
        ----------
        parts
            the scores of each block, in order.
        """
        return Scores(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Scores)))

    def warn(self, tolerance: float) -> None:
        """Warn of rows with larger errors than asked for, and of mass that the proposal cannot draw.

        Both are `AccuracyWarning`s.

        Parameters
        ----------
        tolerance
            what was asked for, in nats per row.
        """
        warn_inexact(~self.converged.all(-1), self.error.sum(-1), tolerance)
        outside = self.outside.sum(-1)
        unseen = outside > tolerance
        if bool(unseen.any()):
            _warn(
                f"up to {float(outside.max()):.2g} of the mass lies outside the proposal's reach for "
                f"{_rows(unseen)}: these log densities include it, importance sampling would not"
            )


def warn_inexact(inexact: Bool[Tensor, " B"], error: Float[Tensor, " B"], tolerance: float) -> None:
    """Warn of rows with larger errors than asked for.

    Parameters
    ----------
    inexact
        which rows have.
    error
        estimated error of each row, in nats.
    tolerance
        what was asked for, in nats per row.
    """
    if bool(inexact.any()):
        _warn(
            f"the tolerance of {tolerance:g} nats was not met within the node budget for "
            f"{_rows(inexact)}; the largest error is {float(error[inexact].max()):.2g} nats"
        )


def _rows(which: Bool[Tensor, " B"]) -> str:
    """Name rows as in '3 of 10 rows (2, 5, 7)'."""
    numbers = which.nonzero()[:, 0].tolist()
    listed = ", ".join(map(str, numbers[:NAMED])) + (", …" if len(numbers) > NAMED else "")
    return f"{len(numbers)} of {len(which)} rows ({listed})"


def _warn(message: str) -> None:
    warnings.warn(message, AccuracyWarning, stacklevel=4)


def refuse_not_finite(rows: Float[Tensor, "*B D"], columns: Sequence[str]) -> None:
    """Raise an error that names the first value that is not finite, if there is one.

    Parameters
    ----------
    rows
        rows in the units of the data.
    columns
        names of the columns.
    """
    if not bool(torch.isfinite(rows).all()):
        row, column = (~torch.isfinite(rows)).reshape(-1, len(columns)).nonzero()[0].tolist()
        raise AemError(f"row {row} of column '{columns[column]}' is not finite")


def blocks(model: "AEM", rows: int, memory: int, most: int | None = None) -> Iterator[slice]:
    """Divide rows into blocks whose pass through the autoregressive network fits into memory.

    Parameters
    ----------
    model
        the model they pass through.
    rows
        how many rows there are.
    memory
        bytes that a block may take.
    most
        the most rows of a block, whatever the memory.
    """
    config = model.config
    outputs = model.head.size + config.gamma + config.energy_hidden
    width = 1 + 2 * config.frequencies
    numbers = config.features * (3 * width + 4 * outputs) + model.arnn.numbers_a_row
    size = min(max(memory // (8 * numbers), 1), most or rows + 1)
    # An empty table is one empty block.
    return (slice(start, start + size) for start in range(0, max(rows, 1), size))


def context_groups(rows: int, context: Float[Tensor, "B Q"] | None) -> Int[Tensor, " B"]:
    """Number rows so that those with equal contexts have the same number.

    Parameters
    ----------
    rows
        how many rows there are.
    context
        the context of each row; without one all rows are of one group.
    """
    if context is None:
        return torch.zeros(rows, dtype=torch.long)
    groups = torch.zeros(rows, dtype=torch.long, device=context.device)
    for column in context.unbind(-1):
        groups = split_groups(groups, column)
    return groups


def split_groups(groups: Int[Tensor, " B"], column: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Divide groups of rows by their values in one more column.

    Parameters
    ----------
    groups
        the number of each row's group.
    column
        the column's value in each row.
    """
    _, values = column.unique(return_inverse=True)
    finer: Tensor
    _, finer = (groups * (len(column) + 1) + values).unique(return_inverse=True)
    return finer


def shared_pasts(
    z: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None
) -> Iterator[Int[Tensor, " B"]]:
    """Yield for each feature the groups of rows with equal x_<d and context.

    Such rows share a conditional. Without a context all rows share the first one; the rows of a
    grid share nearly all.

    Parameters
    ----------
    z
        rows as `AEM.standardise` returns them.
    context
        the context of each row, or None.
    """
    groups = context_groups(len(z), context).to(z.device)
    for column in z.unbind(-1):
        yield groups
        groups = split_groups(groups, column)


def solve(
    flat: Conditionals,
    z: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    settings: Quadrature,
    *,
    keep_panels: bool = False,
    interpolating: bool = True,
) -> tuple[Normalizer, Int[Tensor, "B D"]]:
    """Compute the normalisers of the distinct conditionals among those of rows.

    Parameters
    ----------
    flat
        all conditionals of the rows, with one batch axis of B · D.
    z
        rows as `AEM.standardise` returns them.
    context
        the context of each row, standardised, or None.
    settings
        how exactly; the tolerance per row is shared by its conditionals.
    keep_panels
        whether to keep the panels, which CDFs and derivatives need.
    interpolating
        whether panels that are kept are refined as far as CDFs need them.

    Returns
    -------
    normalizer : Normalizer
        the normalisers of the distinct conditionals.
    owner : tensor [B, D]
        for each row and feature the number of its conditional among them.
    """
    features = z.shape[1]
    chosen, owner, count = [], [], 0
    for d, groups in enumerate(shared_pasts(z, context)):
        rows = representatives(groups)
        chosen.append(rows * features + d)
        owner.append(groups + count)
        count += len(rows)
    distinct = flat.select(torch.cat(chosen))
    tolerance = settings.tolerance / features
    computed = normalizer(
        distinct,
        settings,
        tolerance=tolerance,
        keep_panels=keep_panels,
        interpolating=interpolating,
    )
    return computed, torch.stack(owner, -1)


def score_block(
    model: "AEM",
    rows: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    settings: Quadrature,
    first_row: int = 0,
) -> Scores:
    """Score rows in the units of the data with a float64 model.

    Parameters
    ----------
    model
        the model, in float64 (`AEM.in_double`).
    rows
        rows that fit into memory together.
    context
        the context of each row, in its own units, or None.
    settings
        tolerance per row, nodes and memory of the quadrature.
    first_row
        number of the first of these rows, for messages.
    """
    z = model.standardise(rows.double())
    context = model.standardise_context(None if context is None else context.double())
    flat = model.conditionals(z, context).flatten()
    return score_conditionals(model, flat, z, context, settings, first_row)


def score_conditionals(
    model: "AEM",
    flat: Conditionals,
    z: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    settings: Quadrature,
    first_row: int = 0,
    solved: tuple[Normalizer, Int[Tensor, "B D"]] | None = None,
) -> Scores:
    """Score standardised rows whose conditionals are known already.

    Parameters
    ----------
    model
        the model, in float64.
    flat
        all conditionals of the rows, with one batch axis.
    z
        rows as `AEM.standardise` returns them.
    context
        the context of each row, standardised, or None.
    settings
        tolerance per row, nodes and memory of the quadrature.
    first_row
        number of the first of these rows, for messages.
    solved
        what `solve` gave, where that is known already.
    """
    if model.flat:
        return _scores_of_proposal(model, flat, z)
    computed, owner = solve(flat, z, context, settings) if solved is None else solved
    log_z = computed.log_z[owner]
    refuse_divergent(log_z, model.columns, first_row)
    log_p = flat.log_unnormalized(z.reshape(-1, 1)).reshape(z.shape) - log_z
    return Scores(
        log_p + model.standardisation.log_slope,
        computed.error[owner],
        log_proposal(model, flat, z),
        log_z,
        computed.outside[owner],
        computed.nodes[owner],
        computed.converged[owner],
    )


def log_proposal(model: "AEM", flat: Conditionals, z: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    """Return log densities of the proposal by conditional, in the units of the data.

    Parameters
    ----------
    model
        the model.
    flat
        all conditionals of the rows, with one batch axis.
    z
        rows as `AEM.standardise` returns them.
    """
    log_q = flat.proposal.log_prob_of(z.flatten()).reshape(z.shape)
    return log_q + model.standardisation.log_slope


def _scores_of_proposal(model: "AEM", flat: Conditionals, z: Float[Tensor, "B D"]) -> Scores:
    """Score rows of a model with constant energy, which needs no integration."""
    log_q = log_proposal(model, flat, z)
    none = torch.zeros_like(z)
    first = flat.select(torch.arange(min(z.numel(), 1), device=z.device))
    log_z = first.log_weight(z.reshape(-1, 1)[:1]).sum() + none  # the same everywhere
    return Scores(log_q, none, log_q, log_z, none, none.long(), none == 0)


def score(
    model: "AEM",
    rows: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    settings: Quadrature,
) -> Scores:
    """Score rows a block at a time.

    Parameters
    ----------
    model
        the model, in float64.
    rows
        rows in the units of the data.
    context
        the context of each row, in its own units, or None.
    settings
        how exactly, and with how much memory.
    """
    if context is not None and len(context) != len(rows):
        raise AemError(f"the context has {len(context)} rows, the data {len(rows)}")

    def some(block: slice) -> Scores:
        own = None if context is None else context[block]
        return score_block(model, rows[block], own, settings, block.start)

    return Scores.concatenate(list(block_by_block(some, model, rows, context, settings)))


def block_by_block(
    function: Callable[[slice], BlockResult],
    model: "AEM",
    rows: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    settings: Quadrature,
    most: int | None = None,
) -> Iterator[BlockResult]:
    """Apply a function to blocks of rows that fit into memory, and yield the results.

    The threads of a processor take a block each, unless rows share so many conditionals that blocks
    would compute too many of them anew: then threads share the integrals of one block.

    Parameters
    ----------
    function
        what is done with a block, a slice of the rows.
    model
        the model that the rows pass through.
    rows
        all rows, on the device where they are treated.
    context
        the context of each row, or None.
    settings
        settings of the quadrature, of which the memory counts.
    most
        the most rows of a block.
    """
    memory = settings.bytes_on(rows.device)
    if rows.device.type != "cpu" or not (model.flat or _hardly_shared(rows, context)):
        yield from map(function, blocks(model, len(rows), memory, most))
        return
    threads = get_threads()
    rounds = max(-(-len(rows) // (threads * MOST_TOGETHER)), 1)
    share = max(-(-len(rows) // (threads * rounds)), FEWEST_TOGETHER)
    yield from spread(function, blocks(model, len(rows), memory, share))


def _hardly_shared(rows: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None) -> bool:
    """Return whether most conditionals belong to a single row."""
    distinct = sum(int(groups.max()) + 1 for groups in shared_pasts(rows, context) if len(groups))
    return 2 * distinct > rows.numel()


@torch.no_grad()
def without_density(exact: "AEM", x: Float[Tensor, "B D"]) -> Bool[Tensor, " B"]:
    """Return the rows where a normaliser is infinite, as the paper's literal energy allows.

    Parameters
    ----------
    exact
        the model, in float64.
    x
        rows in the units of the data.
    """
    if exact.config.energy == "literal":
        z = exact.standardise(x.double())
        coordinates = coordinates_for(exact.conditionals(z).flatten())
        if isinstance(coordinates, TailedCoordinates):
            return coordinates.diverges().reshape(z.shape).any(-1)
    return torch.zeros(len(x), dtype=torch.bool, device=x.device)


def by_row(
    values: Shaped[Tensor, " N"], where: Bool[Tensor, " B"], otherwise: float | bool
) -> Shaped[Tensor, " B"]:
    """Expand values of masked rows to all B rows; the other rows get a fill value."""
    every = values.new_full(where.shape, otherwise)
    every[where] = values
    return every
