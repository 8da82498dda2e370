"""Steps that several of MAF's recipes share."""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from aem.data.splits import Floats
from aem.errors import AemError

Three: TypeAlias = tuple[Floats, Floats, Floats]

_HELD_OUT: Final = 0.1
_TOLERATED_REPEATS: Final = 5


def hold_out(rows: Floats) -> tuple[Floats, Floats]:
    """Cut off the last tenth of rows.

    Parameters
    ----------
    rows
        ten rows at least.

    Returns
    -------
    rest : array
        all rows but the last tenth.
    held_out : array
        the last tenth.
    """
    held_out = int(_HELD_OUT * len(rows))
    if held_out == 0:
        raise AemError(f"{len(rows)} rows are too few to hold out a tenth of them")
    return rows[:-held_out], rows[-held_out:]


def split_three(rows: Floats) -> Three:
    """Cut off the last tenth as test, then the last tenth of the rest as validation.

    Parameters
    ----------
    rows
        a hundred rows or so at least, in the order in which they are to be split.
    """
    rest, test = hold_out(rows)
    train, validation = hold_out(rest)
    return train, validation, test


def standardise(rows: Floats, reference: Floats, ddof: int = 0) -> Floats:
    """Shift and scale every column by the mean and deviation it has in other rows.

    Parameters
    ----------
    rows
        the rows to standardise.
    reference
        the rows that means and deviations are of.
    ddof
        what the deviations' divisor is less than the number of rows: 0 or 1.
    """
    if len(incomplete := np.flatnonzero(~np.isfinite(rows).all(axis=0))):
        raise AemError(f"{_columns(incomplete)} missing or infinite values")
    deviation = reference.std(axis=0, ddof=ddof)
    if len(constant := np.flatnonzero(deviation == 0)):
        raise AemError(f"{_columns(constant)} one constant value and cannot be standardised")
    standardised: Floats = (rows - reference.mean(axis=0)) / deviation
    return standardised


def continuous_columns(rows: Floats) -> npt.NDArray[np.intp]:
    """Return the columns that MAF took for continuous: the smallest value hardly ever repeats.

    MAF meant to look at the most frequent value of a column but looked at the smallest one. The
    published tables have the columns that this rule leaves, so this is the rule.

    Parameters
    ----------
    rows
        rows [B, D].
    """
    repeats = (rows == rows.min(axis=0)).sum(axis=0)
    return np.flatnonzero(repeats <= _TOLERATED_REPEATS)


def _columns(numbers: npt.NDArray[np.intp]) -> str:
    names = ", ".join(map(str, numbers))
    return f"column {names} has" if len(numbers) == 1 else f"columns {names} have"
