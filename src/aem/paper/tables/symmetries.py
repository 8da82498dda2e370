"""Symmetries of a table, which give more training rows and can be averaged in scores.

A patch of a picture may be mirrored or turned. Each such map keeps volumes, so a model's density of the
mapped row is a density of the row, and so is the mean over several maps: one model then stands for as
many, each of which explains the columns in an order of its own.
"""

from collections.abc import Sequence

import numpy as np

from aem.data.splits import Table, TableSplits
from aem.errors import AemError
from aem.model.transforms.symmetry import Symmetry
from aem.tables.model import TableModel


def symmetrised(splits: TableSplits, count: int) -> Table:
    """Return the images of a table's training rows under some of its symmetries.

    Parameters
    ----------
    splits
        a table with as many known symmetries.
    count
        how many: the first ones, beginning with the identity.
    """
    if count == 1:
        return splits.train
    check_symmetries(splits, count)
    images = [splits.train @ s.T.astype(splits.train.dtype) for s in splits.symmetries[:count]]
    return np.concatenate(images)


def views(members: Sequence[TableModel], splits: TableSplits, count: int) -> list[TableModel]:
    """Return every member once for each of some symmetries.

    Parameters
    ----------
    members
        models of the table.
    splits
        a table with as many known symmetries.
    count
        how many: the first ones, beginning with the identity.
    """
    if count == 1:
        return list(members)
    check_symmetries(splits, count)
    maps = [Symmetry(tuple(map(tuple, s.tolist()))) for s in splits.symmetries[:count]]
    return [member.behind(symmetry) for member in members for symmetry in maps]


def check_symmetries(splits: TableSplits, count: int) -> None:
    """Refuse more symmetries than the table has.

    Parameters
    ----------
    splits
        a table, which knows its symmetries.
    count
        how many are asked for.
    """
    known = max(len(splits.symmetries), 1)
    if count > known:
        raise AemError(f"the table {splits.name} has {known} known symmetries, not {count}")
