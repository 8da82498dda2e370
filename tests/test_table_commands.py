"""`aem fit`, `score` and `sample` as a person meets them."""

import io
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from aem import AEMDensity, TableModel
from aem.cli import main
from aem.io import FORMAT_VERSION, read_tensors, write_tensors
from aem.tablemodel import ColumnScores

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


@pytest.mark.parametrize("command", ["fit", "score", "sample", "report"])
def test_help_teaches(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(monkeypatch, command, "--help") == 0
    said = capsys.readouterr().out
    assert "Examples:" in said
    assert f"aem {command} wine" in said
    words = [line.strip() for line in said.partition("╭")[0].splitlines()]
    for line, following in itertools.pairwise(words):
        if line and following:
            assert len(f"{line} {following.split()[0]}") > 78, "ragged"


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
    os.mkfifo("pipe")
    refused(["fit", "wine.csv", "--out", "pipe"], "not an ordinary file", monkeypatch, capsys)
    refused(["fit", "wine.csv", "--out", "-"], "a model is a file", monkeypatch, capsys)


def test_a_model_is_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["score", "-", "wine.csv"], ["sample", "-", "-n", "3"]):
        refused(arguments, "a model is a file", monkeypatch, capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "wine.csv", "--out", "./wine.csv"],
        ["fit", "wine.csv", "--out", "link.csv"],
        ["score", "wine.model", "wine.csv", "--out", "wine.csv"],
        ["score", "model.csv", "wine.csv", "--out", "model.csv"],
        ["sample", "model.csv", "-n", "3", "--out", "model.csv"],
        ["report", "model.html", "wine.csv", "--out", "model.html"],
        ["evaluate", "wine.model", "wine.csv", "--out", "wine.csv"],
    ],
)
def test_inputs_are_never_written_over(
    arguments: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("link.csv").symlink_to("wine.csv")
    for name in ("model.csv", "model.html"):
        Path(name).write_bytes(Path("wine.model").read_bytes())
    before = {path: path.read_bytes() for path in Path().iterdir()}
    refused(arguments, "is what the command reads", monkeypatch, capsys)
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "wine.csv", "--out", "new/m"],
        ["score", "wine.model", "wine.csv", "--out", "o.csv"],
        ["sample", "wine.model", "-n", "3", "--out", "o.csv"],
        ["report", "wine.model", "wine.csv", "--out", "o.html"],
        ["evaluate", "wine.model", "wine.csv", "--out", "o.json"],
    ],
)
def test_outputs_are_tried_before_the_work(
    arguments: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("worked for nothing")

    for name in ("streams.read_raw", "places.TableModel.load", "evaluate.load_model"):
        monkeypatch.setattr(f"aem.commands.{name}", work)
    long = [*arguments[:-1], "a" * 300 + Path(arguments[-1]).suffix]
    refused(long, "File name too long", monkeypatch, capsys)
    may = os.access
    monkeypatch.setattr("os.access", lambda path, mode: mode == os.R_OK and may(path, mode))
    refused(arguments, "you may not write to", monkeypatch, capsys)


def test_numbers_as_names_are_matched_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    years = GOOD.set_axis(["2019", "2020", "2021"], axis=1)
    density = AEMDensity(components=1).fit(years)
    density.save("years.model")
    years[["2021", "2019", "2020"]].to_csv("years.csv", index=False)
    assert run(monkeypatch, "score", "years.model", "years.csv", "--out", "s.csv") == 0
    np.testing.assert_array_equal(read("s.csv")["log_density"], density.score_samples(years))
    years.set_axis(["2019", "2020", "2022"], axis=1).to_csv("other.csv", index=False)
    refused(["score", "years.model", "other.csv"], "no column '2021'", monkeypatch, capsys)


def test_a_first_line_taken_as_a_row_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    GOOD.to_csv("bare.csv", index=False, header=False)
    assert run(monkeypatch, "fit", "bare.csv", "--out", "m", "--components", "1", "--json") == 0
    said = capsys.readouterr()
    assert "its first line was taken as a row, its columns as 'x1', 'x2', 'x3'" in said.err
    assert len(said.err.splitlines()) == 1
    assert json.loads(said.out)["first_line_is_a_row"] is True
    assert run(monkeypatch, "score", "wine.model", "bare.csv", "--out", "s.csv") == 0
    assert "its columns as 'alcohol', 'magnesium', 'hue'" in capsys.readouterr().err
    assert run(monkeypatch, "score", "m", "bare.csv", "--out", "s.csv") == 0
    assert not capsys.readouterr().err, "what the model expects is no news"
    assert len(read("s.csv")) == len(GOOD)


def test_names_are_printed_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["[/red]", ":car:", "[bold]"]
    GOOD.round(0).set_axis(names, axis=1).to_csv("[red].csv", index=False)
    assert run(monkeypatch, "fit", "[red].csv", "--out", "[/m]", "--components", "1") == 0
    said = capsys.readouterr().out
    for name in names:
        assert f"Column '{name}' is discrete" in said
    assert "the model is [/m]." in said


def test_evaluate_prints_names_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wine.csv").rename("[x].csv")
    few = ("--rows", "3", "--samples", "0", "--kde-samples", "0")
    assert run(monkeypatch, "evaluate", "wine.model", "[x].csv", *few) == 0
    assert "wine.model on [x].csv" in " ".join(capsys.readouterr().out.split())


def test_json_has_no_infinities(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = np.full((178, 3), -np.inf)
    monkeypatch.setattr(TableModel, "score", lambda *_: ColumnScores(scores, np.zeros(178)))
    assert run(monkeypatch, "score", "wine.model", "wine.csv", "--out", "s.json", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["mean_log_density"] is None and summary["lowest_row"] == 0
    text = Path("s.json").read_text()
    assert "Infinity" not in text and json.loads(text)[0]["log_density"] is None


@pytest.mark.parametrize("seed", ["-1", str(2**31), str(2**64)])
@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "wine.csv", "--out", "m"],
        ["sample", "wine.model", "-n", "3"],
        ["report", "wine.model", "wine.csv", "--out", "r.html"],
        ["evaluate", "wine.model", "wine.csv"],
        ["reproduce", "dimensionality", "--out", "d"],
    ],
)
def test_seeds_out_of_range(
    arguments: list[str],
    seed: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *arguments, "--seed", seed) == 2
    assert "--seed" in capsys.readouterr().err


def test_the_largest_seed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = ("fit", "wine.csv", "--out", "m", "--components", "2")
    assert run(monkeypatch, *fit, "--seed", str(2**31 - 1)) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_output(folder: Path, unbuffered: str) -> None:
    program = [sys.executable, "-m", "aem.cli", "sample", "wine.model", "-n", "10"]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            program,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert ended.returncode == 2
    assert ended.stderr == "aem: cannot write to standard output: No space left on device\n"


def test_true_words_about_mixtures_and_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--components", "1", "--steps", "0", "--out", "m")
    assert run(monkeypatch, "fit", "wine.csv", *few) == 0
    assert "is a single Gaussian; the networks were not trained on so small a table" in (
        " ".join(capsys.readouterr().out.split())
    )
    many = np.random.default_rng(0).normal(size=(2_000, 2))
    np.save("many.npy", many)
    assert run(monkeypatch, "fit", "many.npy", *few) == 0
    assert "no networks were trained, as --steps 0 asks" in capsys.readouterr().out
    dropped = [word for name in COLUMNS for word in ("--drop", name)]
    refused(["fit", "wine.csv", "--out", "m2", *dropped], "no columns left", monkeypatch, capsys)
