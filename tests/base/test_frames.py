"""Types of columns: what was fitted decides them, where the values fit in."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from aem.base.frames import as_dtype, as_same_frame, dtypes_of, empty_frame, frame_dtypes


@pytest.mark.parametrize(
    ("values", "dtype", "expected", "found"),
    [
        ([1.4, 1.6, -2.0], "int64", [1, 2, -2], "int64"),
        ([1.4, 1.6, -2.0], "int8", [1, 2, -2], "int8"),
        ([127.4, -128.4], "int8", [127, -128], "int8"),
        ([127.6, 0.0], "int8", [128, 0], "int64"),
        ([-1.0, 3.0], "uint8", [-1, 3], "int64"),
        ([2.0**63, 0.0], "int64", [2.0**63, 0], "float64"),
        ([-(2.0**63), 0.0], "int64", [-(2**63), 0], "int64"),
        ([2.0**64, 0.5], "uint64", [2.0**64, 0.5], "float64"),
        ([2.0**63, 0.0], "uint64", [2**63, 0], "uint64"),
        ([0.0, 1.0, 2.0, -1.0], "bool", [False, True, True, False], "bool"),
        ([0.1, 1e30], "float32", np.array([0.1, 1e30], dtype="float32"), "float32"),
        ([0.1, 1e300], "float32", [0.1, 1e300], "float64"),
        ([0.1, 2.0], None, [0.1, 2.0], "float64"),
        ([], "int16", [], "int16"),
    ],
)
def test_numbers_in_the_type_of_a_column(
    values: list[float], dtype: str | None, expected: Any, found: str
) -> None:
    typed = as_dtype(np.array(values, dtype=np.float64), dtype)
    assert typed.dtype == found
    np.testing.assert_array_equal(typed, expected)


PANDAS = pd.DataFrame(
    {
        "int64": [1, 2],
        "int8": np.array([1, 2], dtype="int8"),
        "Int64": pd.array([1, 2], dtype="Int64"),
        "bool": [True, False],
        "boolean": pd.array([True, False], dtype="boolean"),
        "float32": np.array([1, 2], dtype="float32"),
        "Float32": pd.array([1, 2], dtype="Float32"),
        "Float64": pd.array([1, 2], dtype="Float64"),
        "float64": [1.0, 2.0],
        "arrow": pd.array([1, 2], dtype="int32[pyarrow]"),
        5: [1, 2],
    },
    index=["x", "y"],
)
POLARS = pl.DataFrame(
    {"a": [1, 2], "b": [True, False], "c": [1.0, 2.0]},
    schema={"a": pl.UInt16, "b": pl.Boolean, "c": pl.Float32},
)
ARROW = pa.table({"a": pa.array([1, 2], pa.int32()), "b": [True, False], "c": [1.5, 2.0]})


@pytest.mark.parametrize("frame", [PANDAS, POLARS, ARROW], ids=["pandas", "polars", "arrow"])
def test_a_frame_keeps_its_types(frame: Any) -> None:
    labels = frame.column_names if frame is ARROW else list(frame.columns)
    numbers = {label: np.array([1.0, 0.0]) for label in labels}
    empty = empty_frame(frame)
    for like in (frame, empty):
        same = as_same_frame(numbers, like)
        assert type(same) is type(frame) and len(same) == 2
        if frame is ARROW:
            assert same.schema.types == frame.schema.types
        else:
            assert list(same.dtypes) == list(frame.dtypes)
    assert len(empty) == 0
    assert frame_dtypes(empty) == frame_dtypes(frame)


def test_what_a_type_cannot_hold_gets_a_wider_one() -> None:
    beyond = np.array([-1.0, 3.0])
    found = as_same_frame({"a": beyond, "b": beyond, "c": beyond}, POLARS)
    assert list(found.dtypes) == [pl.Int64, pl.Boolean, pl.Float32]
    assert found["a"].to_list() == [-1, 3]


def test_names_of_types_are_those_of_numpy() -> None:
    expected = {"int8": "int8", "Int64": "int64", "boolean": "bool", "Float32": "float32"}
    found = frame_dtypes(PANDAS)
    assert expected.items() <= found.items()
    assert found["5"] == "int64" and "float64" not in found and "Float64" not in found
    assert dtypes_of({"text": pl.Series(["a"]), "day": pl.Series([1]).cast(pl.Date)}) == {}
