"""How a text is written is found from its head: delimiter, decimal sign, encoding, header."""

import codecs
import io
from pathlib import Path

import numpy as np
import pytest

from aem.errors import AemError
from aem.tables.reading import read_raw, read_rows
from aem.tables.text import DELIMITERS, delimiter_of

ROWS = np.array([[1.5, 20.0, -3.25], [4.0, 50.5, 6.0], [7.25, 8.0, 9.0]])
NAMES = ("alpha", "beta", "gamma")


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def text_of(delimiter: str, *, decimal: str = ".", header: bool = True) -> str:
    lines = [list(NAMES)] if header else []
    lines += [[str(value).replace(".", decimal) for value in row] for row in ROWS]
    return "".join(delimiter.join(line) + "\n" for line in lines)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize("name", DELIMITERS)
@pytest.mark.parametrize("header", [True, False])
def test_the_delimiter_is_found_whatever_the_file_is_called(
    name: str, ending: str, header: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / f"t{ending}", text_of(DELIMITERS[name], header=header))
    for delimiter in (None, name, DELIMITERS[name]):
        found = read_rows(path, delimiter=delimiter)
        np.testing.assert_array_equal(found.values, ROWS)
        assert found.headless is not header
        assert found.names == (NAMES if header else ("x1", "x2", "x3"))


@pytest.mark.parametrize("name", ["semicolon", "tab", "pipe", "space"])
@pytest.mark.parametrize("header", [True, False])
def test_decimal_commas_are_read_and_told(name: str, header: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", text_of(DELIMITERS[name], decimal=",", header=header))
    found = read_rows(path)
    np.testing.assert_array_equal(found.values, ROWS)
    assert "decimal commas were read as points" in " ".join(found.remarks)


def test_quoted_numbers_and_quoted_decimal_commas(tmp_path: Path) -> None:
    quoted = write(tmp_path / "q.csv", '"a","b"\n"1.5","2"\n"3","4"\n')
    np.testing.assert_array_equal(read_rows(quoted).values, [[1.5, 2], [3, 4]])
    commas = write(tmp_path / "c.csv", '"a","b"\n"1,5","2"\n"3,25","4"\n')
    np.testing.assert_array_equal(read_rows(commas).values, [[1.5, 2], [3.25, 4]])


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n1,"1,234"\n2,"5,678"\n',  # thousands or decimals
        "a;b\n1;1,234\n2;5,678\n",
        "a;b\n1,5;1.234\n2;5\n",  # points and commas
        'a,b\n1,"1,234,567"\n2,3\n',
        "a;b\n1;1.234,5\n2;3\n",
        "a;b\n1;1 234\n2;3\n",
        "a;b\n1;1'234.5\n2;3\n",
    ],
)
def test_separators_of_thousands_are_refused_never_guessed(text: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(AemError, match="with a decimal point and without separators of thousands"):
        read_rows(path)


def test_text_with_commas_and_blanks_is_no_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "day time;who;x\n2020-01-01 00:00;A, B;1\n2020-01-02;C, D;2\n")
    found = read_rows(path, drop=["day time", "who"])
    np.testing.assert_array_equal(found.values, [[1], [2]])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_unicode_with_a_mark(encoding: str, tmp_path: Path) -> None:
    marks = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
    content = marks.get(encoding, b"") + "größe;b\n1;2\n3;4\n".encode(encoding)
    (tmp_path / "t.csv").write_bytes(content)
    found = read_rows(tmp_path / "t.csv")
    assert found.names == ("größe", "b")
    np.testing.assert_array_equal(found.values, [[1, 2], [3, 4]])


def test_spaced_texts_in_other_encodings(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-8-sig", "cp1252"):
        path = write(tmp_path / "t.txt", "  größe   b\n  1    2\n  3    4\n", encoding)
        found = read_rows(path)
        assert found.names == ("größe", "b")
        np.testing.assert_array_equal(found.values, [[1, 2], [3, 4]])


def test_a_text_of_an_old_spreadsheet_is_read_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "größe,b\n1,2\n3,4\n", "latin-1")
    found = read_rows(path)
    assert found.names == ("größe", "b")
    assert found.remarks == (f"{path}: it is not UTF-8 and was read as Windows-1252",)


@pytest.mark.parametrize("content", [bytes(range(256)) * 20, "a,b\n1,2\n".encode("utf-16-le")])
def test_what_is_no_text(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(AemError, match="is not a text: if it is a table, save it as CSV in UTF-8"):
        read_rows(tmp_path / "t.csv")


def test_a_character_cut_in_two_by_the_end_of_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "größe,b\n" + "".join(f"{i},{i / 2}\n" for i in range(50))
    path = write(tmp_path / "t.csv", text)
    for head in (2, 3, 4, 5, 6, 17, 18, 40):
        monkeypatch.setattr("aem.tables.text.HEAD", head)
        assert len(read_rows(path).values) == 50


def test_how_spreadsheets_announce_a_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "sep=:\n" + text_of(":"))
    np.testing.assert_array_equal(read_rows(path).values, ROWS)


def test_an_unusual_delimiter_is_asked_for_and_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", text_of(":"))
    with pytest.raises(AemError, match="single column, of text: give what separates its fields"):
        read_rows(path)
    np.testing.assert_array_equal(read_rows(path, delimiter=":").values, ROWS)


@pytest.mark.parametrize("given", ["", "ab", '"', "\n", "a", "1"])
def test_delimiters_that_are_none(given: str) -> None:
    with pytest.raises(AemError, match="is no delimiter: give a character that is neither"):
        delimiter_of(given)
    assert delimiter_of("Tab") == delimiter_of("\\t") == "\t"


def test_lines_of_other_lengths_name_the_delimiter_that_was_found(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", text_of(";") + "1;2\n")
    with pytest.raises(
        AemError, match=r"got 2: 1;2; fields were divided by ';': --delimiter names"
    ):
        read_rows(path)


@pytest.mark.parametrize("above", ["My wines\n", "# made by hand\n\n", "a,b\n"])
def test_what_stands_above_the_names(above: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", above + text_of(","))
    with pytest.raises(
        AemError, match=r"has fewer fields \(.\) than most others \(3\): remove what"
    ):
        read_rows(path)


def test_names_of_rows_without_a_name_above_them(tmp_path: Path) -> None:
    """R writes such tables, and pandas prints them."""
    from_r = write(tmp_path / "r.txt", '"a" "b"\n"1" 1.5 2\n"2" 3 4\n')
    printed = write(tmp_path / "p.txt", "     a  b\n0  1.5  2\n1    3  4\n")
    named = write(tmp_path / "n.csv", "a,b\nRome,1.5,2\nOslo,3,4\n")
    for path in (from_r, printed, named):
        found = read_rows(path)
        assert found.names == ("a", "b")
        np.testing.assert_array_equal(found.values, [[1.5, 2], [3, 4]])
        assert "column without a name was taken for row labels" in found.remarks[0]
    for rows in ("1.5,2,3\n4,5,6\n", "Rome,2,\nOslo,3,\n"):
        shifted = write(tmp_path / "s.csv", f"a,b\n{rows}")
        with pytest.raises(AemError, match="fewer fields"):
            read_rows(shifted)


def test_names_of_several_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", '"length\n(mm)",b\n1,2\n3,4\n')
    assert read_rows(path).names == ("length\n(mm)", "b")


def test_a_line_that_nothing_divides(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "x" * 200_000)
    with pytest.raises(AemError, match="',' does not divide its lines: --delimiter names another"):
        read_rows(path)


def test_one_column_needs_no_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a\n1\n2.5\n")
    np.testing.assert_array_equal(read_rows(path).values, [[1], [2.5]])


def test_lines_longer_than_the_fields_of_python(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).normal(size=(3, 9000)).round(12)
    text = io.StringIO()
    np.savetxt(
        text, wide, delimiter=";", header=";".join(f"c{i}" for i in range(9000)), comments=""
    )
    path = write(tmp_path / "t.csv", text.getvalue())
    np.testing.assert_allclose(read_rows(path).values, wide, rtol=1e-15)


def test_blank_lines_alone_are_empty(tmp_path: Path) -> None:
    with pytest.raises(AemError, match="is empty"):
        read_raw(write(tmp_path / "t.csv", "\n\n\n"))
