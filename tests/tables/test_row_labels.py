"""What pandas writes beside a table to name its rows is recognised, left out and told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aem.errors import AemError
from aem.tables.reading import NamedRows, read_rows

FRAME = pd.DataFrame({"a": [1.5, 2.5, 3.5, 4.5], "b": [2, 4, 8, 16]})
SOME = FRAME.drop(index=1)  # its index has a gap, so that Parquet keeps it


def as_csv(frame: pd.DataFrame, **how: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        frame.to_csv(folder / "t.csv", **how)
        return folder / "t.csv"

    return write


def as_parquet(frame: pd.DataFrame) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        frame.to_parquet(folder / "t.parquet")
        return folder / "t.parquet"

    return write


def read_back(frame: pd.DataFrame) -> pd.DataFrame:
    """As who reads the index that was written for a column gets it."""
    return frame.reset_index().rename(columns={"index": "Unnamed: 0"})


NAMED = SOME.set_index(pd.Index(["x", "y", "z"], name="who"))
TWO = SOME.set_index(pd.MultiIndex.from_arrays([["x", "x", "y"], [1, 2, 1]]))
LABELLED = {
    "csv": (as_csv(SOME), "its column without a name was"),
    "csv, semicolons": (as_csv(SOME, sep=";"), "its column without a name was"),
    "csv, names of rows": (as_csv(NAMED.rename_axis(None)), "its column without a name was"),
    "csv, two levels": (as_csv(TWO), "its columns without a name, without a name were"),
    "csv, written again": (as_csv(read_back(SOME), index=False), "its column 'Unnamed: 0' was"),
    "csv, twice": (as_csv(read_back(SOME)), "its columns without a name, 'Unnamed: 0' were"),
    "csv, reset": (as_csv(SOME.reset_index(), index=False), "its column 'index' was"),
    "csv, one row": (as_csv(SOME[2:].reset_index(), index=False), "its column 'index' was"),
    "parquet": (as_parquet(SOME), "its column '__index_level_0__' was"),
    "parquet, a name": (as_parquet(NAMED), "its column 'who' was"),
    "parquet, two levels": (
        as_parquet(TWO),
        "its columns '__index_level_0__', '__index_level_1__'",
    ),
    "parquet, reset": (as_parquet(SOME.reset_index()), "its column 'index' was"),
}


@pytest.mark.parametrize("case", LABELLED)
@pytest.mark.parametrize("wanted", [None, ("b", "a")])
def test_row_labels_are_left_out(case: str, wanted: tuple[str, ...] | None, tmp_path: Path) -> None:
    write, told = LABELLED[case]
    path = write(tmp_path)
    found = read_rows(path, wanted=wanted)
    assert found.names == (wanted or ("a", "b"))
    expected = SOME[2:] if case == "csv, one row" else SOME
    np.testing.assert_array_equal(found.values, expected[list(found.names)])
    (remark,) = found.remarks
    assert remark.startswith(f"{path}: {told}")
    assert "taken for row labels and left out" in remark


@pytest.mark.parametrize(
    "write",
    [
        as_csv(FRAME, index=False),
        as_parquet(FRAME),  # counts from zero, which Parquet files of pandas say without a column
        as_csv(FRAME.rename_axis("time")),  # whoever names an index means it
        as_parquet(FRAME.assign(index=1)),
    ],
)
def test_other_columns_are_kept_without_a_word(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    found = read_rows(write(tmp_path))
    assert {"a", "b"} <= set(found.names)
    assert not found.remarks


@pytest.mark.parametrize("values", [[3, 1, 2, 0], [0.5, 1, 2, 3], [-1, 0, 1, 2], [0, 1, 1, 2]])
def test_an_index_that_does_not_count_is_a_column(values: list[float], tmp_path: Path) -> None:
    path = as_csv(pd.DataFrame({"index": values, "a": FRAME["a"]}), index=False)(tmp_path)
    found = read_rows(path)
    assert found.names == ("index", "a")
    np.testing.assert_array_equal(found.values[:, 0], values)


def test_a_column_that_the_model_knows_is_a_column(tmp_path: Path) -> None:
    """Models of earlier versions were fitted on row labels, too."""
    for frame, name in ((SOME.reset_index(), "index"), (read_back(SOME), "Unnamed: 0")):
        found = read_rows(as_csv(frame, index=False)(tmp_path), wanted=(name, "a", "b"))
        np.testing.assert_array_equal(found.values[:, 0], SOME.index)
        assert not found.remarks


def test_a_model_without_names_takes_columns_as_they_come(tmp_path: Path) -> None:
    path = as_csv(SOME)(tmp_path)
    three = read_rows(path, wanted=["x1", "x2", "x3"])
    np.testing.assert_array_equal(three.values[:, 0], SOME.index)
    assert not three.remarks
    two = read_rows(path, wanted=["x1", "x2"])
    np.testing.assert_array_equal(two.values, SOME)
    assert two.remarks


def test_row_labels_may_be_dropped_by_name(tmp_path: Path) -> None:
    path = as_parquet(SOME)(tmp_path)
    assert read_rows(path, drop=["__index_level_0__", "b"]).names == ("a",)


def test_columns_without_names_that_an_index_stands_before(tmp_path: Path) -> None:
    path = as_csv(FRAME.set_axis(range(2), axis=1))(tmp_path)
    assert read_rows(path).names == ("x1", "x2")
    np.testing.assert_array_equal(read_rows(path, wanted=["1", "0"]).values, FRAME[["b", "a"]])


def read_text(text: str, folder: Path) -> NamedRows:
    (folder / "t.csv").write_text(text)
    return read_rows(folder / "t.csv")


def test_a_nameless_column_is_left_out_only_if_it_is_empty(tmp_path: Path) -> None:
    found = read_text("a,b,\n1,2,\n3,4,\n", tmp_path)  # a delimiter too many in each line
    assert found.names == ("a", "b") and not found.remarks
    with pytest.raises(AemError, match=r"the column after 'a' of .* has no name: give it one"):
        read_text("a,,b\n1,2,3\n4,5,6\n", tmp_path)
