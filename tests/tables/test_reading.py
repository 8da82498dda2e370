import bz2
import gzip
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from aem.errors import AemError
from aem.tables.reading import read_raw, read_rows


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def table() -> np.ndarray:
    return np.array([[1.0, 20.0, 3.5], [4.0, 50.0, -6.5]])


def test_the_same_table_from_every_kind(tmp_path: Path, table: np.ndarray) -> None:
    np.save(tmp_path / "t.npy", table)
    names = ["a", "b", "c"]
    parquet.write_table(pa.table(dict(zip(names, table.T, strict=True))), tmp_path / "t.parquet")
    feather.write_feather(pa.table(dict(zip(names, table.T, strict=True))), tmp_path / "t.feather")
    write(tmp_path / "t.csv", "a,b,c\n1,20,3.5\n4,50,-6.5\n")
    write(tmp_path / "t.tsv", "a\tb\tc\n1\t20\t3.5\n4\t50\t-6.5\n")
    for kind in ("npy", "parquet", "feather", "csv", "tsv"):
        np.testing.assert_array_equal(read_rows(tmp_path / f"t.{kind}").values, table)
        np.testing.assert_array_equal(read_rows(tmp_path / f"t.{kind}", wanted=names).values, table)


@pytest.mark.parametrize(("name", "pack"), [("t.csv.gz", gzip), ("t.TSV.BZ2", bz2)])
def test_packed_texts(name: str, pack: Any, tmp_path: Path, table: np.ndarray) -> None:
    gap = "\t" if "TSV" in name else ","
    text = "\n".join(gap.join(row) for row in (["a", "b", "c"], *table.astype(str)))
    path = tmp_path / name
    path.write_bytes(pack.compress(text.encode()))
    np.testing.assert_array_equal(read_rows(path).values, table)
    for damage in (path.read_bytes()[:-9], b"a,b\n1,2\n", b"\x1f\x8b"):
        path.write_bytes(damage)
        with pytest.raises(AemError, match=name):
            read_rows(path)


def test_a_file_says_what_it_is_whatever_its_name(tmp_path: Path, table: np.ndarray) -> None:
    named = pa.table(dict(zip("abc", table.T, strict=True)))
    path = tmp_path / "t.csv"
    text = "a,b,c\n1,20,3.5\n4,50,-6.5\n"
    for content in (gzip.compress(text.encode()), bz2.compress(text.encode())):
        path.write_bytes(content)
        np.testing.assert_array_equal(read_rows(path).values, table)
    for save in (
        lambda: parquet.write_table(named, path),
        lambda: feather.write_feather(named, str(path)),
        lambda: np.save(path.open("wb"), table),
    ):
        save()
        np.testing.assert_array_equal(read_rows(path).values, table)
    with zipfile.ZipFile(path, "w") as archive:  # as spreadsheets are, too
        archive.writestr("t.csv", text)
    with pytest.raises(AemError, match="is a spreadsheet or a zip archive: save the table in it"):
        read_rows(path)


def test_types_are_told_that_are_not_float64(tmp_path: Path) -> None:
    columns = {
        "whole": pa.array([1, 2]),
        "small": pa.array([1, 2], pa.uint8()),
        "single": pa.array([1.5, 2], pa.float32()),
        "double": pa.array([1.5, 2]),
        "truth": pa.array([True, False]),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    expected = {"whole": "int64", "small": "uint8", "single": "float32", "truth": "bool"}
    assert read_rows(tmp_path / "t.parquet").dtypes == expected
    found = read_rows(write(tmp_path / "t.csv", "truth,whole,double\ntrue,1,1.5\nFalse,2,2\n"))
    assert found.dtypes == {"truth": "bool", "whole": "int64"}


def test_columns_are_matched_by_name_and_others_left_out_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "city,b,a\nRome,20,1\nOslo,50,4\n")
    leaving_out: list[dict[str, Any]] = [{"drop": ["city"]}, {"ignore": ["city", "town"]}]
    for leave_out in leaving_out:
        found = read_rows(path, wanted=["a", "b"], **leave_out)
        np.testing.assert_array_equal(found.values, [[1, 20], [4, 50]])
    with pytest.raises(AemError, match="has a column 'city' the model was not fitted on"):
        read_rows(path, wanted=["a", "b"])
    with pytest.raises(AemError, match="has no column 'town' to drop"):
        read_rows(path, wanted=["a", "b"], drop=["town"])


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "0,1\n1,2\n3,4\n", "u,v\n1,2\n3,4\n"])
def test_default_names_mean_positions(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "t.csv", text)
    np.testing.assert_array_equal(read_rows(path, wanted=["x1", "x2"]).values, [[1, 2], [3, 4]])


def test_names_that_are_numbers_are_names_to_a_model_that_knows_them(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "2021,2019,2020\n1,2,3\n4,5,6\n")
    years = ["2019", "2020", "2021"]
    np.testing.assert_array_equal(read_rows(path, wanted=years).values, [[2, 3, 1], [5, 6, 4]])
    with pytest.raises(AemError, match="no column '2018', which the model was fitted on"):
        read_rows(path, wanted=["2018", "2019", "2020"])
    counted = write(tmp_path / "counted.csv", "0,1,2\n1,2,3\n")
    np.testing.assert_array_equal(read_rows(counted, wanted=["2", "0", "1"]).values, [[3, 1, 2]])


def test_a_row_of_numbers_is_a_row_even_if_one_is_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "1,1,0\n0,2,1\n")
    np.testing.assert_array_equal(
        read_rows(path, wanted=["0", "1", "2"]).values, [[1, 1, 0], [0, 2, 1]]
    )
    assert read_raw(path).headless
    assert not read_raw(write(tmp_path / "named.csv", "a,b\n1,2\n")).headless


def test_a_line_that_counts_above_fractions_is_doubtful(tmp_path: Path) -> None:
    doubtful = write(tmp_path / "years.csv", "2019,2020,2021\n1,2.5,3\n")
    with pytest.raises(AemError, match=r"counts from 2019 to 2021.*\(y2019\).*\(2019\.0\)"):
        read_raw(doubtful)
    whole = write(tmp_path / "whole.csv", "2019,2020,2021\n1,2,3\n")
    written_as_a_row = write(tmp_path / "row.csv", "2019.0,2020,2021\n1,2.5,3\n")
    for path in (whole, written_as_a_row):
        assert len(read_rows(path).values) == 2


def test_structured_arrays_have_names(tmp_path: Path) -> None:
    rows = np.array([(1.0, 2), (3.0, 4)], dtype=[("b", float), ("a", int)])
    np.save(tmp_path / "t.npy", rows)
    np.testing.assert_array_equal(
        read_rows(tmp_path / "t.npy", wanted=["a", "b"]).values, [[2, 1], [4, 3]]
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "a,b\n", "has no rows"),
        ("t.csv", "a,b\n1,2\n3,blue\n", "column 'b' .* not numeric: row 1 holds 'blue'"),
        ("t.csv", "a,a,b\n1,2,3\n", "more than one column 'a'"),
        ("t.csv", "a,b\n1,2\n3,\n", "column 'b' of .* has missing values"),
        ("t.csv", "a,b\n1,2\n3,inf\n", "column 'b' .* has an infinite value"),
        ("t.csv", "a,c\n1,2\n", "no column 'b', which the model was fitted on; it has 'a', 'c'"),
        ("t.csv", "a,b\n1,2\n3\n", "cannot be read as a csv table: .*Expected 2 columns, got 1"),
        ("t.csv", "a,b\n,1\n,2\n", "column 'a' .* has no values"),
        ("t.csv", "1.5,2.5,3.5\n1,2,3\n", "3 columns without names, the model has 2"),
        ("t.parquet", "PAR1 but not really", "cannot be read as a parquet table"),
        ("t.npy", "not numpy", "cannot be read as a npy table"),
        ("t.xlsx", "anything", "none of the kinds of table aem reads: .csv, .tsv, .txt, .parquet"),
    ],
)
def test_trouble_is_told_in_one_sentence(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(AemError, match=said) as caught:
        read_rows(path, wanted=["a", "b"])
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(AemError, match="there is no file"):
        read_rows(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(AemError, match="is a folder"):
        read_rows(tmp_path / "folder.csv")


def test_files_that_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AemError, match="cannot be read: File name too long"):
        read_rows(tmp_path / ("a" * 300 + ".csv"))
    path = write(tmp_path / "t.csv", "a\n1\n")
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda *_: False)
        with pytest.raises(AemError, match="you may not read"):
            read_rows(path)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(AemError, match="cannot be read: Permission denied"):
        read_rows(path)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros(3), "rows and columns"),
        (np.array([["x", "y"]]), "not numbers"),
        (np.zeros((2, 2), dtype=complex), "not numbers"),
        (np.zeros((0, 2)), "no rows"),
        (np.zeros((2, 3)), "3 columns without names"),
        (np.array([[1, object()]], dtype=object), "cannot be read"),
    ],
)
def test_bad_arrays(tmp_path: Path, array: np.ndarray, said: str) -> None:
    np.save(tmp_path / "t.npy", array)
    with pytest.raises(AemError, match=said):
        read_rows(tmp_path / "t.npy", wanted=["a", "b"])
