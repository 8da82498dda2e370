"""Sampling of rows, column by column from one-dimensional conditionals.

*exact*: rejection sampling, which accepts a draw y of the proposal with probability w(y). It is exact
for relative energies (see `aem.conditionals.batch`), and takes 1/Z draws on average.
*inverse*: inversion of the conditional's CDF, exact to the quadrature's tolerance for all energies. It
is also used where acceptance rates are too low.
*resample*: as in the paper, one of N proposal draws in proportion to its weight; exact as N → ∞.
*proposal*: draws of the proposal itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.randomness import drawing_from, generator, seeds, uniforms
from aem.base.threads import spread
from aem.conditionals.batch import Conditionals, representatives
from aem.conditionals.cdf import PanelCDF
from aem.conditionals.normalizer import PANEL_BYTES, Quadrature, normalizer, refuse_divergent
from aem.config import RESAMPLED
from aem.errors import AemError
from aem.model.scoring import blocks, context_groups, solve, split_groups

if TYPE_CHECKING:
    from aem.model.aem import AEM

Drawn = TypeVar("Drawn")
Sampler = Callable[[Conditionals], Float[Tensor, " B"]]  # one draw of each conditional

# Rows per block: enough to keep a thread or a GPU busy, and few enough for memory. Several blocks per
# thread let the threads finish at the same time.
BLOCK = {"cpu": 2**13, "cuda": 2**14}
FEWEST_ROWS, BLOCKS = 2**10, 4
MOST_ROUNDS = 200
MOST_TRIES = 64  # draws per value and round
BUSY = {"cuda": 2**17}  # fewest points per round that keep the device busy


@dataclass(frozen=True)
class Drawing:
    """The method that draws values from conditionals.

    Parameters
    ----------
    method
        "exact", "inverse", "resample" or "proposal", as in `AEMDistribution.sample`.
    proposals
        draws of the proposal that "resample" chooses each value from.
    """

    method: str = "exact"
    proposals: int = RESAMPLED

    def __post_init__(self) -> None:
        if self.method not in SAMPLERS:
            raise AemError(f"unknown sampling method '{self.method}'; known: {', '.join(SAMPLERS)}")
        if self.proposals < 1:
            raise AemError(f"resampling needs at least one proposal, not {self.proposals}")

    @property
    def nodes(self) -> int:
        """The number of nodes per value."""
        return self.proposals if self.method == "resample" else 1

    def __call__(self, conditionals: Conditionals) -> Float[Tensor, " B"]:
        """Draw one value of each conditional."""
        if self.method == "resample":
            return by_resampling(conditionals, self.proposals)
        return SAMPLERS[self.method](conditionals)


def draw(
    model: "AEM", rows: int, context: Float[Tensor, "B Q"] | None, how: Drawing
) -> Float[Tensor, "B D"]:
    """Draw standardised rows, a block at a time.

    Parameters
    ----------
    model
        the model to draw from.
    rows
        how many rows.
    context
        the context of each row, standardised, or None.
    how
        how values are drawn from conditionals.
    """

    def some(block: slice) -> Tensor:
        own = None if context is None else context[block]
        return draw_block(model, block.stop - block.start, own, lambda d, each: how(each))

    parts = list(drawn_in_blocks(some, rows, model.device, how.nodes))
    none = torch.zeros(0, model.config.features, dtype=model.dtype, device=model.device)
    return torch.cat((none, *parts))


def draw_block(
    model: "AEM",
    rows: int,
    context: Float[Tensor, "B Q"] | None,
    draw: Callable[[int, Conditionals], Float[Tensor, " B"]],
) -> Float[Tensor, "B D"]:
    """Draw standardised rows column by column, each given the columns before.

    Parameters
    ----------
    model
        the model to draw from.
    rows
        how many rows; they fit into memory together.
    context
        the context of each row, standardised, or None.
    draw
        a function of a column's number and its conditionals that draws one value from each.
    """
    sequence = model.sequence(rows, context)
    columns = []
    for d in range(model.config.features):
        value = draw(d, sequence.next())
        sequence.push(value)
        columns.append(value)
    return torch.stack(columns, -1)


def drawn_in_blocks(
    draw: Callable[[slice], Drawn], rows: int, device: torch.device, nodes: int = 1
) -> Iterator[Drawn]:
    """Draw rows in blocks, each from a random stream of its own, and yield the blocks.

    Blocks and streams do not depend on the number of threads.

    Parameters
    ----------
    draw
        what is done with a block, a slice of the rows.
    rows
        how many rows there are.
    device
        where they are drawn.
    nodes
        how many nodes a value takes at a time; blocks are smaller where that is more than
        resampling usually takes.
    """
    size = max(BLOCK[device.type] * RESAMPLED // max(nodes, RESAMPLED), 1)
    if device.type == "cpu":
        size = min(max(-(-rows // BLOCKS), FEWEST_ROWS), size)
    starts = range(0, rows, size)

    def some(start_and_seed: tuple[int, int]) -> Drawn:
        start, seed = start_and_seed
        with drawing_from(seed, device):
            return draw(slice(start, min(start + size, rows)))

    return spread(some, zip(starts, seeds(len(starts)), strict=True), device=device.type)


def proposal_draws(conditionals: Conditionals, count: int) -> Float[Tensor, "B S"]:
    """Draw independently from each proposal.

    Parameters
    ----------
    conditionals
        a flat batch.
    count
        S, how many draws from each.
    """
    like = conditionals.proposal.batch
    u = uniforms((*like.shape, count), like)
    return conditionals.proposal.transport(u)


def from_proposal(conditionals: Conditionals) -> Float[Tensor, " B"]:
    """Draw one value from each proposal.

    Parameters
    ----------
    conditionals
        a flat batch.
    """
    return proposal_draws(conditionals, 1)[:, 0]


def by_resampling(conditionals: Conditionals, proposals: int = RESAMPLED) -> Float[Tensor, " B"]:
    """Choose one of N proposal draws by its importance weight (sampling importance resampling).

    Parameters
    ----------
    conditionals
        a flat batch.
    proposals
        N, the number of draws that each value is chosen from.
    """
    y = proposal_draws(conditionals, proposals)
    log_w = conditionals.log_weight(y)
    shares = (log_w - log_w.amax(-1, keepdim=True)).exp()
    chosen = torch.multinomial(shares, 1, generator=generator(shares.device.type))
    return y.gather(-1, chosen)[:, 0]


def by_rejection(conditionals: Conditionals) -> Float[Tensor, " B"]:
    """Draw by rejection sampling, which is exact because relative energies have w ≤ 1.

    Parameters
    ----------
    conditionals
        a flat batch with relative energies.
    """
    if conditionals.form != "relative":
        return by_inversion(conditionals)
    result = torch.empty_like(conditionals.proposal.batch)
    waiting = torch.arange(len(result), device=result.device)
    at_once = BUSY.get(result.device.type, 0)
    tries = 1
    for _ in range(MOST_ROUNDS):
        if not len(waiting):
            return result
        tries = min(max(tries, at_once // len(waiting)), MOST_TRIES)
        some = conditionals.select(waiting)
        y = proposal_draws(some, tries)
        accepted = uniforms(y.shape, y).log() < some.log_weight(y)
        hit = accepted.any(-1)
        # Of several proposals at once the first accepted one is taken, as if they came one by one.
        first = accepted.to(torch.uint8).argmax(-1, keepdim=True)
        result[waiting[hit]] = y.gather(-1, first)[hit, 0]
        waiting = waiting[~hit]
        # The remaining rows have low acceptance rates and need more proposals per round.
        tries *= 2
    if len(waiting):
        result[waiting] = by_inversion(conditionals.select(waiting))
    return result


def by_inversion(conditionals: Conditionals) -> Float[Tensor, " B"]:
    """Draw one value of each conditional by inverting its CDF, computed in float64.

    Parameters
    ----------
    conditionals
        a flat batch.
    """
    like = conditionals.proposal.batch
    settings = Quadrature()
    conditionals = conditionals.double()
    computed = normalizer(conditionals, settings, tolerance=settings.tolerance, keep_panels=True)
    refuse_divergent(computed.log_z[:, None], ("of the draws",))
    u = uniforms(like.shape, like.double())
    return PanelCDF.of(computed).icdf(u[:, None])[:, 0].to(like.dtype)


class KeptPanels:
    """Blocks of rows whose panels fit into memory, sized by the blocks before.

    The number of panels of a CDF is known only afterwards: ten for a smooth energy, ten thousand for
    a comb.

    Parameters
    ----------
    model
        the model that the rows pass through.
    rows
        how many rows there are.
    settings
        settings of the quadrature, of which the memory counts.
    device
        where the panels are.
    """

    FEW = 64

    def __init__(self, model: "AEM", rows: int, settings: Quadrature, device: torch.device) -> None:
        memory = settings.bytes_on(device)
        self.panels = max(memory // 2 // PANEL_BYTES, 1)
        self.most = next(blocks(model, rows, memory // 16)).stop
        self.start, self.size = 0, min(self.FEW, self.most)

    def next(self) -> slice:
        """Return the next block of rows."""
        block = slice(self.start, self.start + self.size)
        self.start, self.size = block.stop, min(2 * self.size, self.most)
        return block

    def seen(self, cdf: PanelCDF, rows: int) -> None:
        """Choose the size of the next block from the number of panels of this one.

        Parameters
        ----------
        cdf
            the CDFs of one column of the block.
        rows
            how many rows the block has.
        """
        fit = self.panels * rows // max(len(cdf.panels), 1)
        self.size = max(min(self.size, fit), 1)


def invert(
    model: "AEM",
    u: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    settings: Quadrature,
) -> Float[Tensor, "B D"]:
    """Return standardised rows whose conditional CDFs have the values u.

    Parameters
    ----------
    model
        the model, in float64.
    u
        values of the conditional CDFs, in [0, 1].
    context
        the context of each row, standardised, or None.
    settings
        tolerance per row, nodes and memory of the quadrature.
    """
    parts: list[Tensor] = []
    tolerance = settings.tolerance / u.shape[1]
    sizes = KeptPanels(model, len(u), settings, u.device)
    while not parts or sizes.start < len(u):
        block = sizes.next()
        levels = u[block]
        own = None if context is None else context[block]
        sequence = model.sequence(len(levels), own)
        # Rows with the same past share a conditional, above all the first.
        groups = context_groups(len(levels), own).to(u.device)
        columns: list[Tensor] = []
        for level in levels.unbind(-1):
            conditionals = sequence.next().select(representatives(groups))
            computed = normalizer(conditionals, settings, tolerance=tolerance, keep_panels=True)
            refuse_divergent(
                computed.log_z[groups][:, None],
                (model.columns[len(columns)],),
                block.start,
            )
            cdf = PanelCDF.of(computed)
            sizes.seen(cdf, len(levels))
            t = cdf.coordinate_at(level, groups)
            z = cdf.coordinates.select(groups).point(t[:, None])[:, 0]
            sequence.push(z)
            columns.append(z)
            groups = split_groups(groups, z)
        parts.append(torch.stack(columns, -1))
    return torch.cat(parts)


def pit(
    model: "AEM",
    rows: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    settings: Quadrature,
) -> Float[Tensor, "B D"]:
    """Return F(x_d | x_<d) of rows.

    Parameters
    ----------
    model
        the model, in float64.
    rows
        rows in the units of the data, float64.
    context
        the context of each row, in its own units, float64, or None.
    settings
        tolerance per row, nodes and memory of the quadrature.
    """
    parts: list[Tensor] = []
    sizes = KeptPanels(model, len(rows), settings, rows.device)
    while not parts or sizes.start < len(rows):
        block = sizes.next()
        z = model.standardise(rows[block])
        own = model.standardise_context(None if context is None else context[block])
        flat = model.conditionals(z, own).flatten()
        computed, owner = solve(flat, z, own, settings, keep_panels=True)
        refuse_divergent(computed.log_z[owner], model.columns, block.start)
        cdf = PanelCDF.of(computed)
        sizes.seen(cdf, len(z))
        problem = owner.reshape(-1)
        t = cdf.coordinates.select(problem).coordinate(z.reshape(-1, 1))[:, 0]
        parts.append(cdf.at_coordinate(t, problem).reshape(z.shape))
    return torch.cat(parts)


SAMPLERS: dict[str, Sampler] = {
    "exact": by_rejection,
    "inverse": by_inversion,
    "resample": by_resampling,
    "proposal": from_proposal,
}
