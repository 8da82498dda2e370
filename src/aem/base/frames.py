"""Data frames in, the same kind out: pandas, polars, Arrow and whatever else narwhals knows."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from aem.base.names import TableError, listed, match_names, unnamed

Array = NDArray[np.float64]


def is_frame(x: Any) -> bool:
    """Whether this is a data frame; one that is still to be computed is refused."""
    if nw.dependencies.is_into_dataframe(x):
        return True
    if isinstance(nw.from_native(x, pass_through=True), nw.LazyFrame):
        raise TableError("the data is a lazy frame, which holds no rows yet: collect it first")
    return False


def column_labels(frame: Any) -> dict[str, Hashable]:
    """Names of the columns, and the labels they have in the frame: pandas allows any."""
    native = nw.to_native(frame, pass_through=True)
    arrow = nw.dependencies.is_pyarrow_table(native)
    labels = native.column_names if arrow else list(native.columns)
    twice = [name for name, count in Counter(map(str, labels)).items() if count > 1]
    if twice:
        raise TableError(f"the data has more than one column {listed(twice)}")
    return {str(label): label for label in labels}


def frame_columns(frame: Any, wanted: Sequence[str] | None = None) -> tuple[list[str], Array]:
    """Names and numbers [B, D] of a frame, or of the wanted columns by name and in that order.

    With wanted columns a frame must have exactly those: one it lacks, or one the model has never
    seen, is an error, an order of its own is not.
    """
    names = list(column_labels(frame))
    table = nw.from_native(frame, eager_only=True)
    series = {name: table[:, place] for place, name in enumerate(names)}
    if wanted is not None:
        match_names(names, wanted)
    chosen = list(wanted) if wanted is not None else names
    refused = [name for name in chosen if not _is_number(series[name])]
    if refused:
        raise TableError(
            f"column {listed(refused)} of the data is not numeric: "
            "categories and text are not supported yet, leave such columns out or encode them"
        )
    missing = [n for n in chosen if series[n].is_null().any() or _has_nan(series[n])]
    if missing:
        raise TableError(
            f"column {listed(missing)} of the data has missing values (NaN), "
            "which are not supported yet: fill them in or leave those rows out"
        )
    numbers = [np.asarray(series[n].to_numpy(), dtype=np.float64) for n in chosen]
    return chosen, np.stack(numbers, axis=1) if numbers else np.empty((len(table), 0))


def matched_columns(frame: Any, columns: Sequence[str]) -> tuple[list[str], Array]:
    """Names and numbers [B, D] of a frame for a model of such columns, in the order of the model.

    Columns are matched by name. A model of columns without names takes a frame that has others by
    position.
    """
    nameless = list(columns) == unnamed(len(columns))
    if nameless and set(column_labels(frame)) != set(columns):
        return frame_columns(frame)
    return frame_columns(frame, list(columns))


def as_frame(columns: Mapping[Any, Any], like: Any) -> Any:
    """A frame of the same kind as another."""
    implementation = nw.get_native_namespace(nw.from_native(like, eager_only=True))
    return nw.from_dict(dict(columns), backend=implementation.__name__).to_native()


def empty_frame(like: Any) -> Any:
    """A frame of the same kind and labels without rows, and without the memory of the other's."""
    return as_frame({label: np.empty(0) for label in column_labels(like).values()}, like)


def _is_number(series: Any) -> bool:
    """A column of nothing but missing values has no type that would say otherwise."""
    numeric = series.dtype.is_numeric() or series.dtype == nw.Boolean
    return bool(numeric or (len(series) and series.is_null().all()))


def _has_nan(series: Any) -> bool:
    return bool(series.dtype.is_float() and series.is_nan().any())
