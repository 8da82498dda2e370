"""Columns that follow from the columns before them, and have no density of their own.

A column that is a sum of others, or the same quantity in another unit, lies on a surface. Its density
given the others has no bound: a model makes it as narrow as it may, and how narrow that is decides
the score.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from aem.model.aem import AEM
from aem.model.transforms.normal_scores import crowding
from aem.tables.discrete import Discrete

LOOKED_AT = 1_000  # rows
# Nats above a density of one per standard deviation: a normal distribution has as much if its own
# deviation is 1/200 of the column's.
CERTAIN = 4.0


@torch.no_grad()
def determined(
    model: AEM, rows: NDArray[np.float64], columns: Sequence[str], discrete: Sequence[Discrete]
) -> list[str]:
    """Return the names of the columns that a model finds almost certain, given those before them.

    Parameters
    ----------
    model
        a trained model.
    rows
        rows [B, D] as the model reads them.
    columns
        names of the columns.
    discrete
        the discrete ones, whose values may well be certain.
    """
    z = model.standardise(torch.from_numpy(rows[:LOOKED_AT])).to(model.device)
    log_q = model.conditionals(z).proposal.log_prob(z[..., None])[..., 0].double()
    # Few far values make a deviation, and so a density per deviation, as large as they like.
    crowded = torch.from_numpy(crowding(rows)).log().clamp_min(0.0).to(log_q.device)
    certain = (log_q.median(0).values - crowded > CERTAIN).tolist()
    excused = {columns[0], *(column.column for column in discrete)}
    return [
        name for name, sure in zip(columns, certain, strict=True) if sure and name not in excused
    ]
