"""log Z of each conditional, computed: adaptive quadrature in the conditional's own coordinate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aem.base.settings import Settings, setting
from aem.base.threads import alone, get_threads, spread
from aem.conditionals.batch import Conditionals
from aem.conditionals.coordinates import (
    Coordinates,
    LineChart,
    TailedCoordinates,
    coordinates_for,
)
from aem.conditionals.quadrature import (
    NODES_PER_PANEL,
    Budget,
    Integrals,
    NodeValues,
    Panels,
    integrate,
    panel_nodes,
)
from aem.errors import AemError
from aem.nn.rowwise import MANY

# Enough to keep a processor busy, little against what its machine has.
MEMORY = {"cpu": 2**28, "cuda": 2**32}
# Nodes at a time, where their activations had better stay in a cache: whole blocks of their products.
CACHED = {"cpu": 136 * MANY}
PANEL_BYTES = 2048  # a panel with its node values, several times over while panels are rearranged
# Literal energies may be large everywhere; below this exp() is about to leave the normal numbers.
SMALLEST_LOG = -600.0
# Nats per conditional. A float32 energy errs by some 1e-6 at a node and hardly in the mean: log Z of
# trained and of random models moved by 1e-7. It serves for tolerances a hundred times as large.
SINGLE_SUFFICES = 1e-5
# Conditionals a thread integrates together, at least: with fewer, what lies between products would cost
# more than another thread gains.
FEWEST = 256
LARGEST_LOG = 300.0  # whose square is still a number


class DivergentNormalizer(AemError):
    """Z is infinite: the density does not exist."""


NAMED = 5  # rows a message names


@dataclass(frozen=True)
class Quadrature(Settings):
    """How exactly a normaliser is computed, and with how much memory and how many nodes."""

    tolerance: float = setting(
        1e-3, "Largest error, in nats per row: all conditionals together.", above=0
    )
    first_panels: int = setting(
        8,
        "Panels of the first round, at most, where these are more than five; tails that fall like a "
        "Gaussian's get fewer.",
        at_least=1,
    )
    max_nodes: int = setting(2**20, "Nodes per conditional, at most.", at_least=1)
    memory: int = setting(
        0,
        "Bytes of working memory, shared by the threads; 0: what suits the device.",
        at_least=0,
    )

    def bytes_on(self, device: torch.device) -> int:
        """Return the working memory; on a CPU that of one thread.

        Parameters
        ----------
        device
            where the quadrature runs.
        """
        memory = self.memory or MEMORY.get(device.type, MEMORY["cpu"])
        return memory // get_threads() if device.type == "cpu" else memory

    def budget(self, conditionals: Conditionals) -> Budget:
        """Return what a quadrature may hold: half of the memory for nodes, half for panels.

        Parameters
        ----------
        conditionals
            what is integrated; the size of its networks decides how many nodes fit.
        """
        device = conditionals.projected.device
        half = self.bytes_on(device) // 2
        fit = nodes_within(half, conditionals)
        return Budget(
            max_nodes=self.max_nodes,
            chunk=min(fit, CACHED.get(device.type, fit)),
            panels=max(half // PANEL_BYTES, 1),
        )


@dataclass(frozen=True)
class Normalizer:
    """Normalisers of N conditionals relative to their proposals, and what they took.

    Parameters
    ----------
    log_z
        log Z; +∞ where Z diverges.
    error
        estimated error of log Z, in nats.
    outside
        share of Z where the proposal never draws: mass that importance sampling cannot see.
    nodes
        evaluations of the energy that each took.
    converged
        whether the tolerance was met.
    coordinates
        the coordinates t that the integrals were taken in.
    offset
        the panels hold weights times e^(−offset), which keeps literal energies within the numbers.
    panels
        the panels with their node values, if they were to be kept; a CDF needs them.
    """

    log_z: Float[Tensor, " N"]
    error: Float[Tensor, " N"]
    outside: Float[Tensor, " N"]
    nodes: Int[Tensor, " N"]
    converged: Bool[Tensor, " N"]
    coordinates: Coordinates
    offset: Float[Tensor, " N"]
    panels: Panels | None = None

    @staticmethod
    def joined(conditionals: Conditionals, parts: Sequence["Normalizer"]) -> "Normalizer":
        """Put together the normalisers of conditionals that were computed a share at a time.

        Parameters
        ----------
        conditionals
            all conditionals, in the order of the shares.
        parts
            the normalisers of each share.
        """
        shares = [len(part.log_z) for part in parts]
        panels = None
        kept = [part.panels for part in parts if part.panels is not None]
        if kept:
            firsts = torch.tensor([0, *shares[:-1]]).cumsum(0).tolist()
            own = zip(kept, firsts, strict=True)
            panels = Panels.concatenate([replace(p, problem=p.problem + k) for p, k in own])

        def all_of(name: str) -> Tensor:
            return torch.cat([getattr(part, name) for part in parts])

        return Normalizer(
            all_of("log_z"),
            all_of("error"),
            all_of("outside"),
            all_of("nodes"),
            all_of("converged"),
            parts[0].coordinates.joined(conditionals, [part.coordinates for part in parts]),
            all_of("offset"),
            panels,
        )


def nodes_within(memory: int, conditionals: Conditionals) -> int:
    """Return how many nodes fit into memory: a few activations and mixture terms are alive at once.

    Parameters
    ----------
    memory
        bytes that may be held at a time.
    conditionals
        what is evaluated at the nodes.
    """
    hidden = conditionals.projected.shape[-1]
    terms, waves = conditionals.proposal.terms, conditionals.frequencies.shape[-1]
    per_node = 8 * (4 * hidden + 8 * terms + 8 * waves)
    return max(memory // per_node, NODES_PER_PANEL)


@alone()
@torch.no_grad()
def normalizer(
    conditionals: Conditionals,
    settings: Quadrature,
    *,
    tolerance: float,
    keep_panels: bool = False,
    interpolating: bool = True,
) -> Normalizer:
    """Compute log Z of a flat batch of conditionals by adaptive quadrature.

    Parameters
    ----------
    conditionals
        N conditionals in float64.
    settings
        panels of the first round, budget of nodes and memory; its own tolerance is per row and not
        read here.
    tolerance
        largest error of each log Z, in nats.
    keep_panels
        whether to keep what `PanelCDF` and `Rule` need.
    interpolating
        whether panels that are kept are refined as far as `PanelCDF` needs them; `Rule` does not.
    """
    single = tolerance >= SINGLE_SUFFICES and conditionals.form == "relative"
    if single:
        conditionals = conditionals.with_single_energy()
    like = conditionals.projected
    size = max(len(like), 1)
    if like.device.type == "cpu":
        size = max(-(-size // get_threads()), FEWEST)
    if size >= len(like):
        return _normalizer(
            conditionals, settings, tolerance, keep_panels, interpolating, single=single
        )

    def share_of(index: Tensor) -> Normalizer:
        some = conditionals.select(index)
        return _normalizer(some, settings, tolerance, keep_panels, interpolating, single=single)

    shares = torch.arange(len(like)).split(size)
    return Normalizer.joined(conditionals, list(spread(share_of, shares)))


def _normalizer(
    conditionals: Conditionals,
    settings: Quadrature,
    tolerance: float,
    keep_panels: bool,
    interpolating: bool,
    *,
    single: bool,
) -> Normalizer:
    """The same, all at once."""
    coordinates = coordinates_for(conditionals, settings.first_panels)
    divergent = torch.zeros_like(conditionals.projected[:, 0], dtype=torch.bool)
    if isinstance(coordinates, TailedCoordinates):
        divergent = coordinates.diverges()
    overflown = torch.zeros_like(divergent)
    edges = coordinates.edges()
    offset = _offsets(coordinates, edges, settings.budget(conditionals).chunk)

    evaluated = coordinates
    if single and isinstance(coordinates, LineChart):
        evaluated = coordinates.in_single()

    def integrand(problem: Tensor, t: Tensor, start: Tensor, end: Tensor) -> NodeValues:
        own = evaluated.select(problem)
        panel = own.on_panels(t, start, end)
        # Nobody needs the numbers of a divergent problem: a constant ends it at once.
        level = own.log_weight(t, panel.x) - offset[problem, None]
        level = torch.where(divergent[problem, None], 0.0, level)
        overflown[problem[(level > LARGEST_LOG).any(-1)]] = True
        return NodeValues(
            level.clamp(max=LARGEST_LOG).exp(),
            panel.measure,
            panel.mass,
            panel.mass * panel.unresolved * doubtful(problem, start, end),
        )

    def doubtful(problem: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Where something may hide: the tails of a literal energy have no frequency to go by."""
        return (start >= 0) & (end <= 1) & ~divergent[problem]

    def foresee(problem: Tensor, edges: Tensor) -> Tensor:
        hidden = evaluated.select(problem).foresee(edges)
        return hidden * doubtful(problem, edges[:, 0], edges[:, -1])[:, None]

    integrals: Integrals = integrate(
        integrand,
        len(conditionals.projected),
        tolerance=tolerance,
        edges=edges,
        budget=settings.budget(conditionals),
        comparable=coordinates.comparable,
        keep_panels=keep_panels,
        interpolating=interpolating,
        foresee=foresee,
    )
    # log(Z ± e) stays within −log(1 − e/Z) of log Z; an error as large as Z bounds nothing.
    relative = (integrals.error / integrals.value).clamp(max=1.0).masked_fill(overflown, 1.0)
    return Normalizer(
        torch.where(divergent, torch.inf, integrals.value.log() + offset),
        torch.where(divergent, torch.inf, -torch.log1p(-relative)),
        (1 - integrals.core / integrals.value).clamp_min(0),
        integrals.nodes,
        integrals.converged & ~divergent & ~overflown,
        coordinates,
        offset,
        integrals.panels,
    )


def _offsets(
    coordinates: Coordinates, edges: Float[Tensor, "*N E"], chunk: int
) -> Float[Tensor, " N"]:
    """What to subtract from log integrands so that their exponentials are ordinary numbers.

    Nothing for relative energies, whose weights lie between e^−32 and one.
    """
    count = len(coordinates.conditionals.projected)
    if coordinates.conditionals.form == "relative":
        return edges.new_zeros(count)
    t = panel_nodes(edges[:-1], edges[1:]).reshape(-1)
    parts = []
    for index in torch.arange(count, device=edges.device).split(max(chunk // len(t), 1)):
        own, places = coordinates.select(index), t.expand(len(index), -1)
        parts.append(own.log_weight(places, own.point(places)).amax(-1))
    highest = torch.cat(parts) if parts else edges.new_zeros(0)
    return torch.where(highest.abs() > -SMALLEST_LOG, highest, 0.0)


def with_tolerance(settings: Quadrature, tolerance: float | None) -> Quadrature:
    """Return the settings, with another tolerance if one is given.

    Parameters
    ----------
    settings
        the settings to start from.
    tolerance
        largest error per row, in nats; None leaves the settings as they are.
    """
    return settings if tolerance is None else replace(settings, tolerance=tolerance)


def refuse_divergent(
    log_z: Float[Tensor, "B D"], columns: tuple[str, ...], first_row: int = 0
) -> None:
    """Raise an error that names row and column if a normaliser is infinite.

    Parameters
    ----------
    log_z
        log normalisers of rows.
    columns
        names of the columns.
    first_row
        number of the first of these rows, where they are a block of more.
    """
    divergent = log_z == torch.inf
    if bool(divergent.any()):
        rows, column = divergent.nonzero().unbind(-1)
        here = rows[column == column[0]]
        listed = ", ".join(str(first_row + r) for r in here[:NAMED].tolist())
        raise DivergentNormalizer(
            f"the normaliser of column '{columns[int(column[0])]}' is infinite for row {listed}"
            f"{', …' if len(here) > NAMED else ''}: this model's literal energy does not decay, so it "
            "has no density; train with the energy 'relative', or a uniform proposal with bounds"
        )
