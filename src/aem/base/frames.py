"""Data frames of pandas, polars, Arrow and other libraries, through narwhals."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from aem.base.names import TableError, listed, places

Array = NDArray[np.float64]


def is_frame(x: Any) -> bool:
    """Return whether this is a data frame; a lazy one, which holds no rows yet, is refused.

    Parameters
    ----------
    x
        whatever a user passed as rows.
    """
    if nw.dependencies.is_into_dataframe(x):
        return True
    if isinstance(nw.from_native(x, pass_through=True), nw.LazyFrame):
        raise TableError("the data is a lazy frame, which holds no rows yet: collect it first")
    return False


def column_labels(frame: Any) -> dict[str, Hashable]:
    """Return the names of the columns with the labels they have in the frame: pandas allows any.

    Parameters
    ----------
    frame
        a pandas, polars or Arrow table, or another that narwhals knows.
    """
    native = nw.to_native(frame, pass_through=True)
    arrow = nw.dependencies.is_pyarrow_table(native)
    labels = native.column_names if arrow else list(native.columns)
    twice = [name for name, count in Counter(map(str, labels)).items() if count > 1]
    if twice:
        raise TableError(f"the data has more than one column {listed(twice)}")
    return {str(label): label for label in labels}


def frame_columns(frame: Any, wanted: Sequence[str] | None = None) -> tuple[list[str], Array]:
    """Return names and numbers of a frame's columns.

    Parameters
    ----------
    frame
        a pandas, polars or Arrow table, or another that narwhals knows.
    wanted
        the columns of a model, matched by name and given in their order; without any, all.

    Returns
    -------
    names : list of str
        names of the columns.
    values : array [B, D]
        their values, float64 and not missing.
    """
    names = list(column_labels(frame))
    table = nw.from_native(frame, eager_only=True)
    chosen = names if wanted is None else [names[place] for place in places(names, wanted)]
    series = {name: table[:, names.index(name)] for name in chosen}
    return chosen, column_numbers(series) if series else np.empty((len(table), 0))


def column_numbers(
    series: Mapping[str, Any], what: str = "the data", leave_out: str = "leave such columns out"
) -> Array:
    """Numbers [B, D] of columns by name; text and gaps are refused, in all columns at once.

    Parameters
    ----------
    series
        columns of a frame, or others that narwhals knows.
    what
        how errors call the data.
    leave_out
        how errors say that a column should not be there.
    """
    columns = {name: nw.from_native(own, series_only=True) for name, own in series.items()}
    text = [name for name, column in columns.items() if not _is_number(column)]
    if text:
        raise TableError(
            f"column {listed(text)} of {what} is not numeric: {_example(columns[text[0]])}"
            f"categories and text are not supported yet, {leave_out} or encode them"
        )
    gaps = [name for name, column in columns.items() if column.is_null().any() or _has_nan(column)]
    empty = [name for name in gaps if columns[name].is_null().all()]
    if empty:
        raise TableError(f"column {listed(empty)} of {what} has no values: {leave_out}")
    if gaps:
        raise TableError(
            f"column {listed(gaps)} of {what} has missing values (NaN), which are not supported "
            f"yet: fill them in, {leave_out} or leave those rows out"
        )
    numbers = [np.asarray(column.to_numpy(), dtype=np.float64) for column in columns.values()]
    return np.stack(numbers, axis=1)


def as_frame(columns: Mapping[Any, Any], like: Any) -> Any:
    """Return columns as a frame of the same kind as another.

    Parameters
    ----------
    columns
        values by label.
    like
        the other frame.
    """
    implementation = nw.get_native_namespace(nw.from_native(like, eager_only=True))
    return nw.from_dict(dict(columns), backend=implementation.__name__).to_native()


def empty_frame(like: Any) -> Any:
    """Return a frame of the same kind and labels without rows, and without the other's memory.

    Parameters
    ----------
    like
        the other frame.
    """
    return as_frame({label: np.empty(0) for label in column_labels(like).values()}, like)


def _is_number(series: Any) -> bool:
    """Return whether a column is numeric, or has missing values alone and so no known type."""
    numeric = series.dtype.is_numeric() or series.dtype == nw.Boolean
    return bool(numeric or (len(series) and series.is_null().all()))


def _has_nan(series: Any) -> bool:
    return bool(series.dtype.is_float() and series.is_nan().any())


def _example(series: Any) -> str:
    """Where the trouble starts: usually one stray word in a column of numbers."""
    for row, value in enumerate(series):
        if value is not None and not is_number(str(value)):
            return f"row {row} holds '{value}'; "
    return ""


def is_number(text: str) -> bool:
    """Return whether a text can be read as a number.

    Parameters
    ----------
    text
        a cell or a heading.
    """
    try:
        float(text)
    except ValueError:
        return False
    return True
