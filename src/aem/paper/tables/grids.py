"""Columns that lie on a grid, such as whole minutes, spread over its cells.

A density of such a column has no bound: the narrower the spikes on the grid, the better. Trained on
rows spread evenly over their cells a model gives each cell its mass, and what it says of a row on the
grid is that mass over the cell's width.
"""

from dataclasses import replace

import numpy as np

from aem.data.splits import Table, TableSplits
from aem.errors import AemError


def spread_over_cells(splits: TableSplits, seed: int) -> TableSplits:
    """Return the same table with each training and validation value anywhere in its own cell.

    Parameters
    ----------
    splits
        a table with columns known to lie on a grid.
    seed
        seed of the draws.
    """
    if not any(splits.steps):
        raise AemError(f"the table {splits.name} has no column known to lie on a grid")
    rng = np.random.default_rng(seed)
    steps = np.array(splits.steps, dtype=np.float32)

    def moved(table: Table) -> Table:
        return table + steps * (rng.random(table.shape, dtype=np.float32) - 0.5)

    return replace(splits, train=moved(splits.train), validation=moved(splits.validation))
