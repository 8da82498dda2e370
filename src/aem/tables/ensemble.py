"""A mixture of models of one table, such as models with different column orders.

A column order is one way to factorise p(x), and its first columns have few columns before them. The
densities of the members are averaged, not their logarithms: (1/M) Σ p_m(x) is again a density, and at
any row at most log M below the best member.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aem.base.progress import Report, part_of, silent
from aem.base.randomness import seeded
from aem.config import RESAMPLED
from aem.errors import AemError
from aem.model.sampling import Drawing
from aem.tables.discrete import Discrete
from aem.tables.model import TOLERANCE, RowScores, TableModel, positive_count

Array = NDArray[np.float64]


def column_orders(features: int, members: int, seed: int) -> list[tuple[int, ...]]:
    """Return an order of columns for each member: that of the data first, then random ones.

    Each is a function of the seed and its place alone.

    Parameters
    ----------
    features
        D, the number of columns.
    members
        how many orders.
    seed
        seed of the random ones.
    """
    orders = [tuple(range(features))]
    for place in range(1, members):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + place)
        orders.append(tuple(torch.randperm(features, generator=generator).tolist()))
    return orders[:members]


def mixture_log_prob(log_prob: Float[Tensor, "M ..."]) -> Float[Tensor, "..."]:
    """Return the log of the mean density of members.

    Parameters
    ----------
    log_prob
        log densities, the members along the first axis.
    """
    return log_prob.logsumexp(0) - math.log(len(log_prob))


def mixture_error(
    log_prob: Float[Tensor, "M ..."], error: Float[Tensor, "M ..."]
) -> Float[Tensor, "..."]:
    """Return the error of the mixture's log density, given those of the members.

    To first order each counts by its member's share of the density. Where no member has any, the
    shares are not numbers, and the largest error stands for all.

    Parameters
    ----------
    log_prob
        log densities, the members along the first axis.
    error
        their errors, in nats.
    """
    shares = log_prob.softmax(0)
    weighted = (shares * error).nan_to_num(nan=math.inf).sum(0)
    return torch.where(log_prob.isneginf().all(0), error.amax(0), weighted)


class TableEnsemble:
    """Members of equal weight, each a density of the same columns.

    Parameters
    ----------
    members
        models of the same table; each may factorise its columns in another order.
    about
        how the ensemble was made, as JSON can hold it; information only.
    """

    def __init__(self, members: Sequence[TableModel], about: dict[str, Any] | None = None) -> None:
        if not members:
            raise AemError("an ensemble needs at least one member")
        self.members = tuple(members)
        self.about = {} if about is None else about
        self.columns = self.members[0].columns
        self.dtypes = self.members[0].dtypes
        self.discrete: tuple[Discrete, ...] = self.members[0].discrete
        self.left_out = tuple(sorted({name for member in members for name in member.left_out}))
        if any(member.columns != self.columns for member in self.members):
            raise AemError("the members of an ensemble are not models of the same columns")
        if any(member.discrete != self.discrete for member in self.members):
            raise AemError("the members of an ensemble disagree about which columns are discrete")

    def score(
        self, x: ArrayLike, report: Report = silent, *, tolerance: float = TOLERANCE
    ) -> RowScores:
        """Score rows by the mean density of all members; a row's score depends on no other row.

        Parameters
        ----------
        x
            rows: an array, or a data frame, whose columns are matched by name.
        report
            called as `report(what, done, total)` while the work goes on.
        tolerance
            largest error of a member's log density of a row, in nats.
        """
        scores = []
        for number, member in enumerate(self.members):
            told = part_of(report, number, len(self.members))
            scores.append(member.score(x, told, tolerance=tolerance))
        log_prob = torch.from_numpy(np.stack([s.total for s in scores]))
        error = torch.from_numpy(np.stack([s.error for s in scores]))
        return RowScores(mixture_log_prob(log_prob).numpy(), mixture_error(log_prob, error).numpy())

    def sample(
        self,
        count: int,
        seed: int | None = None,
        report: Report = silent,
        *,
        method: str = "exact",
        proposals: int = RESAMPLED,
    ) -> Array:
        """Draw rows, each from a member chosen at random.

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
        with seeded(seed, self.members[0].model.device):
            chosen = torch.randint(len(self.members), (count,)).numpy()
            rows = np.empty((count, len(self.columns)))
            for place, member in enumerate(self.members):
                here = chosen == place
                rows[here] = member.draw(int(here.sum()), how)
                report("rows", int((chosen <= place).sum()), count)
        return rows

    def save(self, path: str | Path) -> None:
        """Write all members to one safetensors file.

        Parameters
        ----------
        path
            the file to write, whole or not at all; models usually end in .aem.
        """
        from aem.tables.files import save_ensemble

        save_ensemble(self, path)
