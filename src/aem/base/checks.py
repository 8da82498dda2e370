"""Checks of input: a table must have finite numbers, or an error says in one sentence what is wrong."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aem.base.names import unnamed
from aem.errors import AemError

FEWEST_ROWS = 10


def check_table(
    values: ArrayLike,
    *,
    columns: Sequence[str] = (),
    features: int | None = None,
    what: str = "data",
    for_fitting: bool = False,
) -> NDArray[np.float64]:
    """Return the values as a float64 [B, D] array, or raise an `AemError` naming the culprit.

    Parameters
    ----------
    values
        an array, nested lists, or a data frame.
    columns
        names of the columns. Those of a data frame are matched by name; where these are only the
        names x1, x2 and so on of columns that have none, a frame of other names goes by position.
    features
        how many columns there must be.
    what
        how errors call the values.
    for_fitting
        refuse what no model can be fitted to: few rows, constant columns, extreme values.
    """
    frame = as_named_columns(values)
    if frame is not None:
        from aem.base.frames import frame_columns

        names, values = frame_columns(frame, columns or None)
        columns = columns or names
    try:
        # In one piece and writable: PyTorch takes no view that runs backwards, and warns of memory
        # that it must not write to.
        table = np.require(values, np.float64, ("ENSUREARRAY", "C", "WRITEABLE"))
    except (TypeError, ValueError) as error:
        raise AemError(f"the {what} must be numbers: {error}") from error
    if table.ndim != 2:
        raise AemError(
            f"the {what} must be a table of rows and columns, not of shape {table.shape}"
        )
    if features is not None and table.shape[1] != features:
        raise AemError(f"the {what} has {table.shape[1]} columns, the model has {features}")
    if columns and len(columns) != table.shape[1]:
        raise AemError(
            f"there are {len(columns)} column names for {table.shape[1]} columns of the {what}"
        )
    if table.shape[1] == 0:
        raise AemError(f"the {what} has no columns")
    names = list(columns) or unnamed(table.shape[1])
    _refuse_non_finite(table, names, what)
    if for_fitting:
        if len(table) < FEWEST_ROWS:
            raise AemError(
                f"the {what} has {len(table)} rows, fitting needs at least {FEWEST_ROWS}"
            )
        constant = np.flatnonzero(table.min(axis=0) == table.max(axis=0))
        if len(constant):
            listed = ", ".join(f"'{names[i]}'" for i in constant[:5])
            raise AemError(
                f"column {listed} of the {what} is constant: it has no density; leave it out"
            )
        # A model keeps mean and deviation in single precision.
        limits = np.finfo(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            deviation, largest = table.std(axis=0), np.abs(table).max(axis=0)
        extreme = np.flatnonzero(~((deviation > limits.tiny) & (largest < limits.max)))
        if len(extreme):
            raise AemError(
                f"column '{names[extreme[0]]}' of the {what} has values too extreme to standardise"
            )
    return table


def as_named_columns(values: Any) -> Any:
    """Return values if they are a data frame, else None.

    The packages that read frames are imported only for a frame.

    Parameters
    ----------
    values
        whatever a user passed as rows.
    """
    if isinstance(values, np.ndarray | list | tuple) or not hasattr(type(values), "columns"):
        return None
    from aem.base.frames import is_frame

    return values if is_frame(values) else None


def _refuse_non_finite(table: NDArray[np.float64], names: Sequence[str], what: str) -> None:
    bad = ~np.isfinite(table)
    if not bad.any():
        return
    column = int(bad.any(axis=0).argmax())
    rows = np.flatnonzero(bad[:, column])
    value = "NaN" if np.isnan(table[rows[0], column]) else "an infinite value"
    raise AemError(
        f"column '{names[column]}' of the {what} has {value} in row {rows[0]}"
        f" ({len(rows)} of {len(table)} rows are not finite there)"
    )


def refuse_extreme(x: NDArray[np.float64], columns: Sequence[str]) -> None:
    """Refuse values that single precision, in which a model computes, cannot hold.

    Parameters
    ----------
    x
        rows [B, D] in the units that a model reads.
    columns
        names of the columns, for the message.
    """
    largest = np.abs(x).max(axis=0, initial=0.0)
    extreme = np.flatnonzero(largest >= 0.1 * np.finfo(np.float32).max)
    if len(extreme):
        d = int(extreme[0])
        raise AemError(
            f"column '{columns[d]}' of the data has a value of {largest[d]:.3g}, too extreme to "
            "compute with"
        )
