"""Data frames of pandas, polars, Arrow and other libraries, through narwhals."""

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from aem.base.names import TableError, listed, places

Array = NDArray[np.float64]

# How pandas calls an index without a name when it is written, read as a column, or made one.
_UNNAMED = re.compile(r"|Unnamed: \d+")
_LEVEL = re.compile(r"__index_level_\d+__")
_INDEX = ("index", "level_0")
# How numpy calls the types of columns, by the name that narwhals has for them.
NUMPY_NAMES = {
    **{f"Int{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "Boolean": "bool",
    "Float32": "float32",
}
# Numbers as people write them: 1,5 and 1.234,5 and 1 234.
_SEPARATED = re.compile(r"[-+]?(\d+,\d+|\d{1,3}([.,'’\s]\d{3})+([.,]\d+)?)")


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
        example = _example(columns[text[0]])
        found = f"column {listed(text)} of {what} is not numeric: "
        if example and _SEPARATED.fullmatch(example[1]):
            raise TableError(
                f"{found}row {example[0]} holds '{example[1]}'; write numbers with a decimal point "
                "and without separators of thousands, as in 1234.5"
            )
        held = f"row {example[0]} holds '{example[1]}'; " if example else ""
        raise TableError(
            f"{found}{held}categories and text are not supported yet, {leave_out} or encode them"
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


def row_labels(
    names: Sequence[str], columns: Sequence[Any], index: Sequence[str] = ()
) -> list[int]:
    """Return the places of columns that number or name the rows, as pandas writes its index.

    These are first columns without a name, or with the name that pandas gives to such a column;
    columns that a Parquet file of pandas says are its index; and a first column "index" that counts.

    Parameters
    ----------
    names
        names of the columns, some of which may be empty.
    columns
        the columns, as series that narwhals knows.
    index
        names of columns that are known to be an index.
    """
    first = 0
    while first < len(names) and _UNNAMED.fullmatch(names[first]):
        first += 1
    if not first and names and names[0] in _INDEX and _counts(columns[0]):
        first = 1
    levels = (n for n, name in enumerate(names) if name in index or _LEVEL.fullmatch(name))
    return sorted({*range(first), *levels})


def _counts(column: Any) -> bool:
    """Whether these are whole numbers from zero on that always rise, as of rows some of which went."""
    series = nw.from_native(column, series_only=True)
    if not series.dtype.is_integer() or series.is_null().any():
        return False
    numbers = series.to_numpy()
    return bool((numbers[:1] >= 0).all() and (np.diff(numbers) > 0).all())


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
    """Return a frame of the same kind, labels and types without rows, and without the other's memory.

    Parameters
    ----------
    like
        the other frame, of numbers.
    """
    return as_same_frame({label: np.empty(0) for label in column_labels(like).values()}, like)


def as_same_frame(columns: Mapping[Any, Array], like: Any) -> Any:
    """Return numbers as a frame of the same kind as another, whose types they take where they can.

    Parameters
    ----------
    columns
        values by label, each of which the other frame has.
    like
        the other frame, of numbers.
    """
    table = nw.from_native(like, eager_only=True)
    place = {label: place for place, label in enumerate(column_labels(like).values())}
    own = {label: table[:, place[label]] for label in columns}
    types = dtypes_of(own)
    typed = {label: as_dtype(values, types.get(label)) for label, values in columns.items()}
    # What a type cannot hold keeps the type that it has.
    kept = [n for n in typed if own[n].dtype.is_numeric() or own[n].dtype == nw.Boolean]
    kept = [n for n in kept if n not in types or typed[n].dtype == types[n]]
    frame = as_frame(typed, like)
    if nw.dependencies.is_pandas_like_dataframe(frame):
        # pandas has several types for the same numbers.
        return frame.astype({label: own[label].to_native().dtype for label in kept})
    casts = [nw.col(label).cast(own[label].dtype) for label in kept]
    return nw.from_native(frame, eager_only=True).with_columns(casts).to_native()


def frame_dtypes(frame: Any) -> dict[str, str]:
    """Return how numpy calls the types of a frame's columns, of those that are not float64.

    Parameters
    ----------
    frame
        a pandas, polars or Arrow table, or another that narwhals knows.
    """
    table = nw.from_native(frame, eager_only=True)
    return dtypes_of({name: table[:, d] for d, name in enumerate(column_labels(frame))})


def dtypes_of(columns: Mapping[Any, Any]) -> dict[Any, str]:
    """Return how numpy calls the types of columns, of those that are not float64.

    Parameters
    ----------
    columns
        series that narwhals knows, by name.
    """
    names = {n: str(nw.from_native(c, series_only=True).dtype) for n, c in columns.items()}
    return {name: NUMPY_NAMES[dtype] for name, dtype in names.items() if dtype in NUMPY_NAMES}


def as_dtype(values: Array, dtype: str | None) -> NDArray[Any]:
    """Return numbers in a type that `dtypes_of` gave, or a wider one if it cannot hold them.

    Whole numbers are the nearest ones: a column of them that is not discrete is so fine that a model
    does not see its steps.

    Parameters
    ----------
    values
        the numbers [B].
    dtype
        the name of the type; None leaves them as they are.
    """
    if dtype is None:
        return values
    if dtype == "bool":
        return values > 0.5
    if dtype == "float32":
        with np.errstate(over="ignore"):
            single = values.astype(dtype)
        return single if np.isfinite(single).all() else values
    whole = np.round(values)
    low, high = whole.min(initial=0), whole.max(initial=0)
    for wider in (dtype, "int64"):
        limits = np.iinfo(wider)
        if low >= limits.min and high < limits.max + 1:  # the largest int64 is no float64
            return whole.astype(wider)
    return values


def _is_number(series: Any) -> bool:
    """Return whether a column is numeric, or has missing values alone and so no known type."""
    numeric = series.dtype.is_numeric() or series.dtype == nw.Boolean
    return bool(numeric or (len(series) and series.is_null().all()))


def _has_nan(series: Any) -> bool:
    return bool(series.dtype.is_float() and series.is_nan().any())


def _example(series: Any) -> tuple[int, str] | None:
    """Where the trouble starts, and with what: usually one stray word in a column of numbers."""
    for row, value in enumerate(series):
        if value is not None and not is_number(str(value)):
            return row, str(value)
    return None


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
