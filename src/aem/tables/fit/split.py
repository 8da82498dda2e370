"""Which rows of a table train a model and which judge it: copies of a row stay on one side.

A model that is judged by copies of its training rows looks better the more it overfits.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Groups = NDArray[np.int64]

HELD_OUT = 10  # one row in this many judges
MOST_HELD_OUT = 1000  # more decide nothing else, and are missed in training
FEWEST_GROUPS = 50  # with fewer different rows, what one side of a split lacks would not be rare
UNLIKELY = 10  # times the pairs of equal rows that independent columns would have
FOLDS = 4
FEW_ROWS = 600  # above, one of the folds is enough to choose by


def copies(x: Array) -> Groups:
    """Give each row the number of its group, counted from 0; equal rows have the same one.

    Parameters
    ----------
    x
        rows [B, D].
    """
    # Zeros of both signs are equal; after this, equal rows are equal bytes.
    rows = np.ascontiguousarray(x + 0.0)
    as_bytes = rows.view(f"V{rows.dtype.itemsize * rows.shape[1]}")[:, 0]
    _, first, group = np.unique(as_bytes, return_index=True, return_inverse=True)
    # In the order of their first rows, so that a table without copies has the numbers of its rows.
    by_appearance = np.argsort(np.argsort(first))
    numbers: Groups = by_appearance[group]
    return numbers


def by_chance(x: Array, groups: Groups) -> bool:
    """Return whether rows agree because their columns have few values, not because they are copies.

    The pairs of rows that agree are compared with those that would if the columns were independent.

    Parameters
    ----------
    x
        rows [B, D].
    groups
        the group of each row, as `copies` returns them.
    """
    sizes = np.bincount(groups)
    pairs = float((sizes * (sizes - 1.0)).sum())
    agreeing = 1.0
    for column in x.T:
        _, counts = np.unique(column, return_counts=True)
        agreeing *= float(np.square(counts / len(x)).sum())
    return len(sizes) < FEWEST_GROUPS or pairs < UNLIKELY * agreeing * len(x) * (len(x) - 1.0)


def hold_out(groups: Groups, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose the rows that judge: about one in ten, with all their copies.

    Parameters
    ----------
    groups
        the group of each row.
    rng
        draws which.
    """
    sizes = np.bincount(groups)
    wanted = min(max(len(groups) // HELD_OUT, 1), MOST_HELD_OUT)
    chosen = np.zeros(len(sizes), dtype=bool)
    for group in np.argsort(rng.permutation(len(sizes))):
        if wanted <= 0:
            break
        # A row with very many copies would be all that judges.
        if sizes[group] <= wanted and chosen.sum() + 1 < len(sizes):
            chosen[group] = True
            wanted -= sizes[group]
    return chosen[groups]


def folds(groups: Groups, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Split rows for cross-validation: mark those that judge, once per fold.

    Parameters
    ----------
    groups
        the group of each row.
    seed
        of the split.
    """
    count = int(groups.max()) + 1
    fold = (np.random.default_rng(seed).permutation(count) % FOLDS)[groups]
    return (fold == f for f in range(FOLDS if count < FEW_ROWS else 1))
