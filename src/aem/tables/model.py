"""A model of a table as a person uses it: names, discrete columns, scores, draws, one file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aem.base.checks import check_table, refuse_extreme
from aem.base.files import as_mapping, blaming_file
from aem.base.progress import Report, silent
from aem.base.randomness import uniforms
from aem.conditionals.batch import Conditionals
from aem.conditionals.normalizer import Quadrature
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.files import load_model, model_information, read_lenses, save_model
from aem.model.sampling import by_rejection, drawn_in_blocks
from aem.model.scoring import block_by_block, score_block, warn_inexact
from aem.model.transforms.normal_scores import Lens, lenses_from, through
from aem.tables.discrete import Discrete, log_cell_density

Array = NDArray[np.float64]

TOLERANCE = 1e-2  # nats a row: far below what a row's score says about it
BLOCK = 256  # rows scored together, between two reports
MOST_REDRAWS = 100
GIVE_UP = 0.05  # a draw beyond the range may not exist: fewer and fewer insist on one


@dataclass(frozen=True)
class ColumnScores:
    """Log densities [B, D] column by column given those before, and the error of each row [B]."""

    log_density: Array
    error: Array

    @property
    def total(self) -> Array:
        """Log density of each row."""
        total: Array = self.log_density.sum(1)
        return total


@dataclass(frozen=True)
class Fitted:
    """A model, its discrete columns, and how it came about as JSON can hold it."""

    model: AEM
    discrete: tuple[Discrete, ...]
    about: dict[str, Any]
    held_out: NDArray[np.bool_] = field(  # rows that did not train it; a file does not know
        default_factory=lambda: np.zeros(0, dtype=bool)
    )


class TableModel:
    """An AEM with its discrete columns. Log densities are in the units of the data."""

    def __init__(self, fitted: Fitted) -> None:
        self.model, self.discrete, self.about = fitted.model, fitted.discrete, fitted.about
        far = self.about.get("offsets", {})
        # The model, in single precision, sees values without these; its double sees them as they are.
        self.offsets: Array = np.array([far.get(name, 0.0) for name in self.columns])
        self.lenses: dict[int, Lens] = {
            self.columns.index(lens.column): lens
            for lens in lenses_from(self.about.get("lenses", []))
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order the model reads them."""
        return self.model.columns

    def seen(self, x: Array) -> Array:
        """Rows [B, D] as `exact` reads them: crowded columns through their lenses."""
        return through(list(self.lenses.values()), self.columns, x) if self.lenses else x

    @cached_property
    def exact(self) -> AEM:
        """The model in float64 and in the units of the data, or of a lens."""
        double = self.model.in_double()
        offsets = torch.from_numpy(self.offsets).to(double.shift.device)
        double.shift += offsets
        double.origins += offsets
        return double

    @cached_property
    def proposal_alone(self) -> bool:
        """Whether the energy is flat, so that there is nothing to integrate."""
        return self.model.flat

    @torch.no_grad()
    def score(
        self, x: ArrayLike, report: Report = silent, *, tolerance: float = TOLERANCE
    ) -> ColumnScores:
        """Score rows, to so many nats each; the same row gives the same number in any company."""
        x = check_table(x, features=len(self.columns), columns=self.columns)
        refuse_extreme(x, self.columns)
        settings = Quadrature(tolerance=tolerance)
        device = self.model.shift.device

        def score(block: slice) -> tuple[Array, Array]:
            some = x[block]
            rows = torch.tensor(self.seen(some), device=device)
            log_density, error = self._score_block(rows, settings, block.start)
            terms = log_density.cpu().numpy()
            for d, lens in self.lenses.items():
                terms[:, d] += lens.log_slope(some[:, d])
            return terms, error.cpu().numpy()

        parts, done = [], 0
        every = torch.from_numpy(x).to(device)
        for part in block_by_block(score, self.exact, every, None, settings, most=BLOCK):
            parts.append(part)
            done += len(part[0])
            report("rows", done, len(x))
        scores = ColumnScores(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        error = torch.from_numpy(scores.error)
        warn_inexact(error > tolerance, error, tolerance)
        return scores

    def _score_block(
        self, rows: Tensor, settings: Quadrature, first_row: int
    ) -> tuple[Tensor, Tensor]:
        """Log densities by column and the error of each row."""
        scores = score_block(self.exact, rows, None, settings, first_row)
        # A proposal's own masses need no normaliser.
        log_z = torch.zeros_like(scores.log_z) if self.proposal_alone else scores.log_z
        cells = log_cell_density(
            self.exact, self.discrete, rows, log_z, proposal_alone=self.proposal_alone
        )
        log_density = scores.log_prob.clone()
        for d, values in cells.items():
            log_density[:, d] = values
        return log_density, scores.error.sum(-1)

    def sample(self, count: int, seed: int | None = None, report: Report = silent) -> Array:
        """Draw rows; discrete columns come back as the values they have."""
        if not isinstance(count, int | np.integer) or count < 1:
            raise AemError(
                f"the number of rows to draw must be a positive whole one, not {count!r}"
            )
        count = int(count)
        device = self.model.shift.device
        self.model.eval()
        parts, done = [], 0
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            if seed is not None:
                torch.manual_seed(seed)
            for part in drawn_in_blocks(self._draw, count, device):
                parts.append(part)
                done += len(part)
                report("rows", done, count)
        rows = np.concatenate(parts)
        for column in self.discrete:
            d = self.columns.index(column.column)
            rows[:, d] = column.restore(rows[:, d])
        return rows

    @torch.no_grad()
    def _draw(self, block: slice) -> Array:
        """Column by column; one with a handful of values is drawn again until it is one of them."""
        model = self.model
        bounded = {self.columns.index(c.column): c for c in self.discrete if c.bounded}
        sequence = model.sequence(block.stop - block.start)
        drawn = []
        for d in range(len(self.columns)):
            conditional = sequence.next()
            z = by_rejection(conditional)
            if d in bounded:
                z = self._redraw(bounded[d], conditional, z, d)
            sequence.push(z)
            drawn.append(z)
        rows: Array = model.in_units(torch.stack(drawn, -1)).double().cpu().numpy() + self.offsets
        for d, lens in self.lenses.items():
            rows[:, d] = lens.inverse(rows[:, d])
        return rows

    def _redraw(self, column: Discrete, conditional: Conditionals, z: Tensor, d: int) -> Tensor:
        """Values beyond those seen are as rare as the score says."""
        within = uniforms(z.shape, z) >= column.beyond
        for _ in range(MOST_REDRAWS):
            # Discrete columns have neither lens nor regression.
            value = (self.model.shift[d] + self.model.scale[d] * z).double().cpu().numpy()
            known = column.within(value + self.offsets[d])
            seen = torch.from_numpy(known).to(z.device)
            wrong = (seen != within).nonzero()[:, 0]
            if not len(wrong):
                break
            z[wrong] = by_rejection(conditional.select(wrong))
            within[wrong] |= uniforms(wrong.shape, z) < GIVE_UP
        return z

    def save(self, path: str | Path) -> None:
        """Write one safe file."""
        save_model(self.model, path, **self.about)

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device = "cpu") -> "TableModel":
        """Read any model file: one that `save` wrote, or one trained in another way."""
        path = Path(path)
        about: dict[str, Any] = model_information(path)["about"]
        model = load_model(path, device, as_table=True)
        if model.config.context_features:
            raise AemError(f"{path} is a model with a context, which a table alone cannot give")
        with blaming_file(path, "model"):
            discrete = _read_discrete(about.get("discrete", []), model.columns)
            read_lenses(about.get("lenses", []), model.columns)
            _check_offsets(about.get("offsets", {}), model.columns)
            return cls(Fitted(model, discrete, about))


def _read_discrete(entries: Any, columns: Sequence[str]) -> tuple[Discrete, ...]:
    """Discrete columns as a file holds them."""
    found = tuple(
        Discrete(**{**entry, "values": tuple(entry.get("values", ()))}) for entry in entries
    )
    for column in found:
        numbers = (column.origin, column.step, column.beyond, *column.values)
        possible = column.step > 0 and column.cells >= 1 and 0 < column.beyond < 1
        if column.column not in columns or not possible or not all(map(math.isfinite, numbers)):
            raise AemError(f"the discrete column '{column.column}' is damaged")
    return found


def _check_offsets(offsets: Any, columns: Sequence[str]) -> None:
    """What columns far from zero lie at, as a file holds it."""
    for name, offset in as_mapping(offsets, "offsets").items():
        if name not in columns or not math.isfinite(offset):
            raise AemError(f"the offset of column '{name}' is damaged")
