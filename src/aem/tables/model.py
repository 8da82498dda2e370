"""The model of a table: column names, transforms, discrete columns, scores, samples, and its file."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aem.base.checks import check_table, refuse_extreme
from aem.base.progress import Report, silent
from aem.base.randomness import seeded, uniforms
from aem.conditionals.batch import Conditionals
from aem.conditionals.normalizer import Quadrature
from aem.config import RESAMPLED
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.gradients import LogDensity
from aem.model.sampling import Drawing, draw_block, drawn_in_blocks
from aem.model.scoring import (
    Scores,
    block_by_block,
    log_proposal,
    score_conditionals,
    warn_inexact,
)
from aem.model.transforms.base import Chain, TableTransform
from aem.model.transforms.permutation import Permutation
from aem.model.transforms.symmetry import Symmetry
from aem.tables.discrete import Discrete, log_cell_density

Array = NDArray[np.float64]

TOLERANCE = 1e-2  # nats per row
BLOCK = 256  # most rows per block, so that progress is reported often
MOST_REDRAWS = 100
GIVE_UP = 0.05  # probability per round of accepting a value within the range after all


@dataclass(frozen=True)
class RowScores:
    """Log densities of B rows in the units of the table, in nats.

    Parameters
    ----------
    total
        log density of each row [B].
    error
        estimated error of each [B].
    """

    total: Array
    error: Array


@dataclass(frozen=True)
class ColumnScores:
    """Log densities of B rows column by column, each given the columns before it, in nats.

    Parameters
    ----------
    log_density
        log densities [B, D] by column of the table.
    error
        estimated error of each row's sum [B].
    """

    log_density: Array
    error: Array

    @property
    def total(self) -> Array:
        """Log density of each row: the sum over its columns."""
        total: Array = self.log_density.sum(1)
        return total


class TableModel:
    """A density of a table: an AEM behind transforms of the columns, some of which may be discrete.

    Log densities are in the units of the table. A discrete column counts with the probability of
    its value divided by its step.

    Parameters
    ----------
    model
        the density of the columns as it reads them.
    transform
        from the columns of the table to the input of the model; the identity without one.
    discrete
        the discrete columns, in the units of the table.
    about
        how the model was made, as JSON can hold it; information only.
    columns
        names in the order of the table, if that is not the model's.
    left_out
        columns of the data that took no part in the fit: commands ignore them in what they read.

    Examples
    --------
    >>> import numpy as np
    >>> from aem import AEMDensity
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = AEMDensity().fit(x).model_  # or TableModel.load("model.aem")
    >>> scores = model.score([[0, 0], [9, 0]])
    >>> scores.log_density.shape, scores.total.shape
    ((2, 2), (2,))
    >>> model.sample(1000, seed=1).shape
    (1000, 2)
    """

    def __init__(
        self,
        model: AEM,
        transform: Chain | None = None,
        discrete: Sequence[Discrete] = (),
        about: dict[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        left_out: Sequence[str] = (),
    ) -> None:
        self.model, self.about = model, {} if about is None else about
        self.left_out = tuple(left_out)
        self._origin: TableModel | None = None  # the table that this one is a view of
        self.transform = Chain() if transform is None else transform
        self.columns = model.columns if columns is None else tuple(columns)
        known = {column.column: column for column in discrete}
        self.dtypes: dict[str, str] = {}  # how samples are typed where they go to a frame or a file
        self.discrete = tuple(known.pop(name) for name in self.columns if name in known)
        if known:
            raise AemError(f"there is no discrete column '{next(iter(known))}'")
        if model.config.context_features:
            raise AemError("this model needs a context, and a table has none")
        self.transform.check(len(self.columns))
        if self.transform.names(self.columns) != model.columns:
            raise AemError("the model has other columns than the table, or another order of them")
        if self.discrete:
            self._check_discrete()

    def _check_discrete(self) -> None:
        """Refuse transforms and models that would change the cells of discrete columns."""
        if self.mixes or self.model.config.whiten:
            raise AemError("a symmetry or a whitened model would mix discrete columns with others")
        origin = torch.zeros(len(self.columns), dtype=torch.float64)
        slopes = dict(zip(self.model.columns, self.transform.log_slopes(origin), strict=True))
        for column in self.discrete:
            if slopes[column.column] != 0:
                raise AemError(f"a transform would rescale the discrete column '{column.column}'")

    @property
    def mixes(self) -> bool:
        """Whether a transform mixes columns of the table, as a symmetry does."""
        return any(isinstance(part, Symmetry) for part in self.transform.parts)

    def in_order(self, columns: Sequence[str]) -> "TableModel":
        """Return the same density for a table with another order of columns.

        Parameters
        ----------
        columns
            all names of this table, in the order wanted.
        """
        if tuple(columns) == self.columns:
            return self
        if sorted(columns) != sorted(self.columns):
            raise AemError("the table has other columns than the model")
        order = Permutation(tuple(list(columns).index(name) for name in self.columns))
        return self.behind(order, columns)

    def behind(self, part: TableTransform, columns: Sequence[str] | None = None) -> "TableModel":
        """Return the density of rows that a further transform maps to rows of this table.

        Parameters
        ----------
        part
            the transform from the new rows to those of this table.
        columns
            names of the new columns, if they stand in another order.
        """
        names = self.columns if columns is None else tuple(columns)
        origin = part.inverse(torch.zeros(len(names), dtype=torch.float64)).tolist()
        discrete = [c.moved(origin[names.index(c.column)]) for c in self.discrete]
        transform = Chain((part, *self.transform.parts))
        view = TableModel(self.model, transform, discrete, self.about, names, self.left_out)
        view._origin = self
        view.dtypes = self.dtypes
        return view

    @cached_property
    def exact(self) -> AEM:
        """The model in float64, in evaluation mode: one copy for all views of a table."""
        return self.model.in_double() if self._origin is None else self._origin.exact

    @cached_property
    def cells(self) -> tuple[Discrete, ...]:
        """The discrete columns in the units of the model; transforms can only shift them."""
        origin = torch.zeros(len(self.columns), dtype=torch.float64)
        by = self.transform.forward(origin).tolist()
        place = self.model.columns.index
        return tuple(column.moved(by[place(column.column)]) for column in self.discrete)

    def rows(self, x: ArrayLike) -> Array:
        """Check rows and return them as an array, or raise an error that says what is wrong.

        Parameters
        ----------
        x
            rows: an array, or a data frame, whose columns are matched by name.
        """
        table = check_table(x, features=len(self.columns), columns=self.columns)
        refuse_extreme(table, self.columns)
        return table

    def read(self, x: Array) -> Tensor:
        """Transform rows to the input of the model, in float64 on its device.

        Parameters
        ----------
        x
            rows that are checked already, in the units of the table.
        """
        return self.transform.forward(torch.tensor(x, device=self.model.device))

    def column(self, d: int) -> "ColumnMap":
        """Return the map of a single column of the table to the model's units, and back.

        Parameters
        ----------
        d
            number of the column in the table.
        """
        return ColumnMap(self, d)

    @torch.no_grad()
    def score(
        self, x: ArrayLike, report: Report = silent, *, tolerance: float = TOLERANCE
    ) -> ColumnScores:
        """Score rows; a row's score depends on no other row.

        Parameters
        ----------
        x
            rows: an array, or a data frame, whose columns are matched by name.
        report
            called as `report(what, done, total)` while the work goes on.
        tolerance
            largest error of a row's log density, in nats; rows that miss it are named in a warning.
        """
        x = self.rows(x)
        settings = Quadrature(tolerance=tolerance)
        every = torch.from_numpy(x).to(self.model.device)

        def score(block: slice) -> tuple[Array, Array]:
            scores = self.score_block(every[block], settings, block.start)
            return scores.log_prob.cpu().numpy(), scores.error.sum(-1).cpu().numpy()

        parts, done = [], 0
        for part in block_by_block(score, self.exact, every, None, settings, most=BLOCK):
            parts.append(part)
            done += len(part[0])
            report("rows", done, len(x))
        scores = ColumnScores(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        error = torch.from_numpy(scores.error)
        warn_inexact(error > tolerance, error, tolerance)
        return scores

    def log_prob(self, x: Tensor, *, tolerance: float = TOLERANCE) -> Tensor:
        """Return log densities [*B] of a tensor of rows, differentiable in the rows.

        They agree with those of `score` up to rounding.

        Parameters
        ----------
        x
            rows [*B, D] in the units of the table, on the model's device.
        tolerance
            largest error of a row's log density, in nats. A gradient has about three digits at 1e-3,
            six at 1e-9.
        """
        if self.discrete:
            raise AemError(
                f"column '{self.discrete[0].column}' is discrete, and its log probability has no "
                "gradient: use score"
            )
        self.rows(x.detach().reshape(-1, x.shape[-1]).cpu().numpy())
        rows = x.double()
        read = self.transform.forward(rows.reshape(-1, rows.shape[-1]))
        log_prob, _ = LogDensity(lambda: self.exact, Quadrature(tolerance=tolerance))(read, None)
        total = log_prob.sum(-1).reshape(x.shape[:-1]) + self.transform.log_det(rows)
        return total.to(x.dtype)

    def scores(self, rows: Tensor, settings: Quadrature) -> Scores:
        """Return scores with all details of the quadrature, by column of the table.

        Parameters
        ----------
        rows
            rows that are checked already, in the units of the table, on the model's device.
        settings
            how exactly, and with how much memory.
        """

        def some(block: slice) -> Scores:
            return self.score_block(rows[block], settings, block.start)

        return Scores.concatenate(list(block_by_block(some, self.exact, rows, None, settings)))

    def _conditionals(self, rows: Tensor) -> tuple[Tensor, Tensor, Conditionals]:
        """Return rows as input of the model, the same standardised, and their conditionals."""
        read = self.transform.forward(rows.double())
        z = self.exact.standardise(read)
        return read, z, self.exact.conditionals(z).flatten()

    def score_block(self, rows: Tensor, settings: Quadrature, first_row: int = 0) -> Scores:
        """Return scores, with all details of the quadrature, of rows that fit into memory together.

        Parameters
        ----------
        rows
            rows that are checked already, in the units of the table, on the model's device.
        settings
            tolerance per row, nodes and memory of the quadrature.
        first_row
            number of the first of these rows, for messages.
        """
        exact = self.exact
        read, z, flat = self._conditionals(rows)
        scores = score_conditionals(exact, flat, z, None, settings, first_row)
        # A proposal's own masses need no normaliser.
        log_z = torch.zeros_like(scores.log_z) if exact.flat else scores.log_z
        terms = self._with_cells(scores.log_prob, flat, read, log_z, proposal_alone=exact.flat)
        slopes = self.transform.log_slopes(rows.double())
        found = {
            field.name: self._by_column(getattr(scores, field.name)) for field in fields(scores)
        }
        return Scores(**found | {"log_prob": self._by_column(terms + slopes)})

    @torch.no_grad()
    def log_proposal(self, rows: Tensor) -> Tensor:
        """Return log densities [B, D] of the proposal alone, by column of the table.

        Parameters
        ----------
        rows
            rows that are checked already, in the units of the table, on the model's device.
        """
        parts = block_by_block(
            lambda block: self._log_proposal(rows[block]), self.exact, rows, None, Quadrature()
        )
        return torch.cat(list(parts))

    def _log_proposal(self, rows: Tensor) -> Tensor:
        read, z, flat = self._conditionals(rows)
        log_q, none = log_proposal(self.exact, flat, z), torch.zeros_like(z)
        terms = self._with_cells(log_q, flat, read, none, proposal_alone=True)
        return self._by_column(terms + self.transform.log_slopes(rows.double()))

    def with_estimated_cells(self, log_prob: Tensor, rows: Tensor, log_z: Tensor) -> Tensor:
        """Replace terms of discrete columns by log probabilities of cells, given estimates of log Z.

        Parameters
        ----------
        log_prob
            estimated log densities [B, D] by column of the model.
        rows
            the rows, in the units of the table.
        log_z
            estimated log normalisers [B, D].
        """

        def some(block: slice) -> Tensor:
            read, _, flat = self._conditionals(rows[block])
            return self._with_cells(log_prob[block], flat, read, log_z[block])

        if not self.cells:
            return log_prob
        return torch.cat(list(block_by_block(some, self.exact, rows, None, Quadrature())))

    def _with_cells(
        self,
        log_prob: Tensor,
        flat: Conditionals,
        read: Tensor,
        log_z: Tensor,
        *,
        proposal_alone: bool = False,
    ) -> Tensor:
        """Replace log densities of discrete columns by log probabilities of cells over the step."""
        if not self.cells:
            return log_prob
        found = log_cell_density(
            self.exact, flat, self.cells, read, log_z, proposal_alone=proposal_alone
        )
        terms = log_prob.clone()
        for d, values in found.items():
            terms[:, d] = values
        return terms

    def _by_column(self, terms: Tensor) -> Tensor:
        """Reorder terms by column of the model to columns of the table."""
        if self.columns == self.model.columns:
            return terms
        return terms[:, [self.model.columns.index(name) for name in self.columns]]

    def sample(
        self,
        count: int,
        seed: int | None = None,
        report: Report = silent,
        *,
        method: str = "exact",
        proposals: int = RESAMPLED,
    ) -> Array:
        """Draw rows, in which discrete columns have values of the table.

        Parameters
        ----------
        count
            how many rows.
        seed
            the same seed draws the same rows; without one PyTorch's own stream goes on.
        report
            called as `report(what, done, total)` while the work goes on.
        method, proposals
            how values are drawn, as in `AEMDistribution.sample`.
        """
        count, how = positive_count(count), Drawing(method, proposals)
        with seeded(seed, self.model.device):
            return self.draw(count, how, report)

    def draw(self, count: int, how: Drawing, report: Report = silent) -> Array:
        """Draw rows with the present state of PyTorch's random generator.

        Parameters
        ----------
        count
            how many rows.
        how
            how values are drawn.
        report
            called as `report(what, done, total)` while the work goes on.
        """
        self.model.eval()
        parts, done = [np.empty((0, len(self.columns)))], 0
        for part in drawn_in_blocks(partial(self._draw, how), count, self.model.device, how.nodes):
            parts.append(part)
            done += len(part)
            report("rows", done, count)
        rows = np.concatenate(parts)
        for column in self.discrete:
            d = self.columns.index(column.column)
            rows[:, d] = column.restore(rows[:, d])
        return rows

    @torch.no_grad()
    def _draw(self, how: Drawing, block: slice) -> Array:
        """Draw a block of rows; columns with few values are drawn again if beyond their range."""
        model = self.model
        bounded = {model.columns.index(c.column): c for c in self.cells if c.bounded}

        def draw(d: int, conditionals: Conditionals) -> Tensor:
            z = how(conditionals)
            return self._redraw(bounded[d], how, conditionals, z, d) if d in bounded else z

        read = model.in_units(draw_block(model, block.stop - block.start, None, draw)).double()
        rows: Array = self.transform.inverse(read).cpu().numpy()
        return rows

    def _redraw(
        self, column: Discrete, how: Drawing, conditional: Conditionals, z: Tensor, d: int
    ) -> Tensor:
        """Redraw values until those beyond the observed range are as rare as in the density."""
        within = uniforms(z.shape, z) >= column.beyond
        shift, scale = self.model.standardisation.shift[d], self.model.standardisation.scale[d]
        for _ in range(MOST_REDRAWS):
            # Discrete columns are neither transformed nor whitened.
            known = column.within((shift + scale * z).double().cpu().numpy())
            seen = torch.from_numpy(known).to(z.device)
            wrong = (seen != within).nonzero()[:, 0]
            if not len(wrong):
                break
            z[wrong] = how(conditional.select(wrong))
            within[wrong] |= uniforms(wrong.shape, z) < GIVE_UP
        return z

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, for `load` and the command line.

        Parameters
        ----------
        path
            the file to write, whole or not at all; models usually end in .aem.
        """
        from aem.tables.files import save_table

        save_table(self, path)

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device = "cpu") -> "TableModel":
        """Read the one model in a file: one that `save` wrote, or one trained in another way.

        Parameters
        ----------
        path
            a file of a model, a detector or a prior; `aem.tables.files.load_table` reads ensembles,
            too.
        device
            device of the model.
        """
        from aem.tables.files import load_single

        return load_single(path, device)


class ColumnMap:
    """The map of one column between the units of the table and those of the model.

    Parameters
    ----------
    table
        the model whose columns are meant; no part of its transform may mix columns.
    d
        number of the column in the table.
    """

    def __init__(self, table: TableModel, d: int) -> None:
        self.table, self.d = table, d
        self.place = table.model.columns.index(table.columns[d])

    def forward(self, values: Array) -> Array:
        """Return values of the column as the model reads them.

        Parameters
        ----------
        values
            values in the units of the table, of any shape.
        """
        return self._put(values, self.d, self.table.transform.forward, self.place)

    def inverse(self, values: Array) -> Array:
        """Return what the model reads as values of the table.

        Parameters
        ----------
        values
            values in the units of the model, of any shape.
        """
        return self._put(values, self.place, self.table.transform.inverse, self.d)

    def log_slope(self, values: Array) -> Array:
        """Return the log slope that turns a log density of the model into one of the table.

        Parameters
        ----------
        values
            values in the units of the table, of any shape.
        """
        return self._put(values, self.d, self.table.transform.log_slopes, self.place)

    def _put(self, values: Array, into: int, change: Any, out: int) -> Array:
        rows = torch.zeros(*values.shape, len(self.table.columns), dtype=torch.float64)
        rows[..., into] = torch.from_numpy(np.ascontiguousarray(values))
        found: Array = change(rows)[..., out].numpy()
        return found


def positive_count(count: Any) -> int:
    """Check a number of rows to draw.

    Parameters
    ----------
    count
        what the caller gave; anything but a positive whole number is refused.
    """
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise AemError(f"the number of rows to draw must be a positive whole one, not {count!r}")
    return int(count)
