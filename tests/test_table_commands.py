"""`aem fit`, `score` and `sample` as a person meets them."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from aem import AEMDensity, TableModel
from aem.cli import main
from aem.io import FORMAT_VERSION, read_tensors, write_tensors

COLUMNS = ["alcohol", "magnesium", "hue"]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["aem", *arguments])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture(scope="module")
def wine() -> pd.DataFrame:
    frame: pd.DataFrame = load_wine(as_frame=True).data
    return frame[COLUMNS]


@pytest.fixture(scope="module")
def fitted(wine: pd.DataFrame) -> AEMDensity:
    return AEMDensity(components=2).fit(wine)


@pytest.fixture
def folder(
    tmp_path: Path, wine: pd.DataFrame, fitted: AEMDensity, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with a table and its model, which is the working directory."""
    wine.to_csv(tmp_path / "wine.csv", index=False)
    fitted.save(tmp_path / "wine.model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_a_table_to_answers(
    folder: Path,
    wine: pd.DataFrame,
    fitted: AEMDensity,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert run(monkeypatch, "fit", "wine.csv", "--out", "new.model", "--components", "2") == 0
    said = capsysbinary.readouterr().out.decode()
    assert "178 rows × 3 columns" in said
    assert "'magnesium' is discrete (whole numbers)" in said
    assert run(monkeypatch, "score", "new.model", "wine.csv") == 0
    scores = pd.read_csv(io.BytesIO(capsysbinary.readouterr().out))
    table = TableModel.load(folder / "new.model")
    np.testing.assert_array_equal(
        scores["log_density"], table.score(wine.to_numpy(dtype=float)).total
    )
    np.testing.assert_array_equal(scores["log_density"], fitted.score_samples(wine))
    assert run(monkeypatch, "sample", "new.model", "-n", "7") == 0
    drawn = pd.read_csv(io.BytesIO(capsysbinary.readouterr().out))
    assert list(drawn.columns) == COLUMNS
    np.testing.assert_array_equal(drawn.to_numpy(), table.sample(7, 0))


def read(name: str) -> pd.DataFrame:
    if name.endswith(".parquet"):
        return pd.read_parquet(name)
    if name.endswith(".json"):
        return pd.DataFrame(json.loads(Path(name).read_text()))
    return pd.read_csv(name, sep="\t" if name.endswith(".tsv") else ",")


def test_python_and_command_line_agree_to_the_last_digit(
    folder: Path, wine: pd.DataFrame, fitted: AEMDensity, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fitted.score_samples(wine)
    for name in ("s.csv", "s.tsv", "s.parquet", "s.json"):
        assert run(monkeypatch, "score", "wine.model", "wine.csv", "--out", name) == 0
        np.testing.assert_array_equal(read(name)["log_density"], expected)


def test_explanations(
    folder: Path,
    wine: pd.DataFrame,
    fitted: AEMDensity,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    arguments = ("--explain", "--top", "2", "--json")
    wine.iloc[:3].to_parquet("few.parquet")
    assert run(monkeypatch, "score", "wine.model", "few.parquet", *arguments) == 0
    lines = pd.DataFrame(json.loads(capsysbinary.readouterr().out))
    expected = fitted.explain(wine.iloc[:3], top=2)
    pd.testing.assert_frame_equal(lines, expected, check_dtype=False, check_index_type=False)


def test_standard_input_other_order_and_json(
    folder: Path,
    wine: pd.DataFrame,
    fitted: AEMDensity,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    text = wine[COLUMNS[::-1]].to_csv(index=False).encode()
    binary = io.BytesIO()
    wine.to_parquet(binary)
    for content in (text, binary.getvalue()):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert run(monkeypatch, "score", "wine.model", "-", "--json") == 0
        rows = json.loads(capsysbinary.readouterr().out)
        np.testing.assert_array_equal(
            [row["log_density"] for row in rows], fitted.score_samples(wine)
        )


def test_dropped_columns_are_remembered(
    folder: Path, wine: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    wine.assign(name="Barolo").to_csv("named.csv", index=False)
    fit = ("fit", "named.csv", "--drop", "name", "--out", "m.model", "--components", "1")
    assert run(monkeypatch, *fit) == 0
    assert run(monkeypatch, "score", "m.model", "named.csv", "--out", "a.csv") == 0
    assert run(monkeypatch, "score", "m.model", "wine.csv", "--out", "b.csv") == 0
    assert Path("a.csv").read_text() == Path("b.csv").read_text()


def test_json_of_fit_and_of_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ("fit", "wine.csv", "--out", "m.model", "--components", "1", "--json")
    assert run(monkeypatch, *fit) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["rows"] == 178
    assert [column["column"] for column in record["discrete"]] == ["magnesium", "hue"]
    sample = ("sample", "m.model", "-n", "3", "--out", "s.parquet", "--json")
    assert run(monkeypatch, *sample) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 3
    assert len(pd.read_parquet("s.parquet")) == 3


@pytest.mark.parametrize("command", ["fit", "score", "sample"])
def test_help_teaches(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, command, "--help") == 0
    said = capsys.readouterr().out
    assert "Examples:" in said
    assert f"aem {command} wine" in said


def text_of(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False))


GOOD = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=COLUMNS).round(3)
BAD = {
    "empty file": ("", "empty"),
    "header alone": ("alcohol,magnesium,hue\n", "no rows"),
    "twice": (text_of(GOOD).replace("magnesium", "alcohol", 1), "'alcohol'"),
    "text": (text_of(GOOD).replace("0.126", "n/k", 1), "column 'alcohol'"),
    "texts": (text_of(GOOD.assign(alcohol="a", hue="b")), "'alcohol', 'hue'"),
    "all missing": (text_of(GOOD.assign(hue=np.nan)), "column 'hue'"),
    "missing": (
        text_of(GOOD.mask(np.eye(30, 3, dtype=bool))),
        "'alcohol', 'magnesium', 'hue'",
    ),
    "extreme": (text_of(GOOD.assign(hue=1e308)), "column 'hue'"),
    "extremes": (text_of(GOOD.assign(hue=[1e308, -1e308] * 15)), "column 'hue'"),
    "infinite": (text_of(GOOD.assign(hue="inf")), "column 'hue'"),
    "ragged": ("alcohol,magnesium,hue\n1,2\n1,2,3,4\n", "table.csv"),
    "binary": ("\x00\x01\x02\xff", "table.csv"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("command", ["fit", "score"])
def test_bad_tables(
    case: str,
    command: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, culprit = BAD[case]
    Path("table.csv").write_bytes(text.encode("latin-1"))
    if command == "fit":
        arguments = ["fit", "table.csv", "--out", "out.model", "--components", "1"]
    else:
        arguments = ["score", "wine.model", "table.csv", "--out", "out.csv", "--explain"]
    refused(arguments, culprit, monkeypatch, capsys)


def refused(
    arguments: list[str],
    culprit: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(Path().iterdir())
    assert run(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert len(captured.err.strip().splitlines()) == 1, captured.err
    assert captured.err.startswith("aem: ")
    assert culprit in captured.err
    assert sorted(Path().iterdir()) == before, "nothing half-written"


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        (lambda f: f.drop(columns="hue"), "no column 'hue'"),
        (lambda f: f.assign(proline=1.0), "column 'proline'"),
    ],
)
def test_columns_missing_or_never_seen(
    change: object,
    culprit: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert callable(change)
    change(GOOD).to_csv("table.csv", index=False)
    refused(["score", "wine.model", "table.csv", "--out", "o.csv"], culprit, monkeypatch, capsys)


def test_empty_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    refused(["score", "wine.model", "-"], "standard input is empty", monkeypatch, capsys)


def test_models_that_are_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = Path("wine.model").read_bytes()
    Path("short.model").write_bytes(content[: len(content) // 2])
    Path("foreign.model").write_bytes(b"GIF89a" + bytes(1000))
    Path("empty.model").write_bytes(b"")
    tensors, metadata = read_tensors(Path("wine.model"), "model")
    newer = {**metadata, "format_version": FORMAT_VERSION + 1}
    write_tensors(Path("newer.model"), tensors, newer)
    write_tensors(Path("partial.model"), {"shift": tensors["shift"]}, metadata)
    cases = {
        "short.model": "short.model",
        "foreign.model": "foreign.model",
        "empty.model": "empty.model",
        "newer.model": f"format version {FORMAT_VERSION + 1}",
        "partial.model": "complete",
        "missing.model": "missing.model",
        "wine.csv": "wine.csv",
    }
    for name, culprit in cases.items():
        refused(["score", name, "wine.csv", "--out", "o.csv"], culprit, monkeypatch, capsys)
        refused(["sample", name, "-n", "3", "--out", "o.csv"], culprit, monkeypatch, capsys)


def test_outputs_that_cannot_be(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("way").write_text("in the way")
    refused(["sample", "wine.model", "-n", "3", "--out", "o.xls"], "o.xls", monkeypatch, capsys)
    refused(["score", "wine.model", "wine.csv", "--out", "way/o.csv"], "way", monkeypatch, capsys)
    refused(["fit", "wine.csv", "--out", "."], ".", monkeypatch, capsys)
    refused(["fit", "wine.csv", "--out", "way/m"], "way", monkeypatch, capsys)
    refused(["fit", "missing.csv", "--out", "m"], "missing.csv", monkeypatch, capsys)
    refused(["fit", "wine.csv", "--drop", "nose", "--out", "m"], "'nose'", monkeypatch, capsys)
