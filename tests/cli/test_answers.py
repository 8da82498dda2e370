"""`aem fit`, `score` and `sample` as a person meets them."""

import gzip
import io
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from aem import AEMDensity, TableModel
from tests.support.running import COLUMNS, GOOD, read, read_text, refused, run


def test_from_a_table_to_answers(
    folder: Path,
    wine: pd.DataFrame,
    fitted: AEMDensity,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert run(monkeypatch, "fit", "wine.csv", "--out", "new.aem", "--components", "2") == 0
    said = capsysbinary.readouterr().out.decode()
    assert "178 rows × 3 columns" in said
    assert "'magnesium' is discrete (whole numbers)" in said
    assert run(monkeypatch, "score", "new.aem", "wine.csv") == 0
    scores = read_text(io.BytesIO(capsysbinary.readouterr().out))
    table = TableModel.load(folder / "new.aem")
    np.testing.assert_array_equal(
        scores["log_density"], table.score(wine.to_numpy(dtype=float)).total
    )
    np.testing.assert_array_equal(scores["log_density"], fitted.score_samples(wine))
    np.testing.assert_array_equal(scores["error"], table.score(wine.to_numpy(dtype=float)).error)
    assert run(monkeypatch, "sample", "new.aem", "-n", "7") == 0
    drawn = read_text(io.BytesIO(capsysbinary.readouterr().out))
    assert list(drawn.columns) == COLUMNS
    np.testing.assert_array_equal(drawn.to_numpy(), table.sample(7, 0))
    resampled = ("sample", "new.aem", "-n", "7", "--method", "resample", "--proposals", "3")
    assert run(monkeypatch, *resampled) == 0
    drawn = read_text(io.BytesIO(capsysbinary.readouterr().out))
    expected = table.sample(7, 0, method="resample", proposals=3)
    np.testing.assert_array_equal(drawn.to_numpy(), expected)
    assert run(monkeypatch, "sample", "new.aem", "-n", "7", "--method", "magic") == 2
    assert "unknown sampling method 'magic'" in capsysbinary.readouterr().err.decode()


def test_python_and_command_line_agree_to_the_last_digit(
    folder: Path, wine: pd.DataFrame, fitted: AEMDensity, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fitted.score_samples(wine)
    for name in ("s.csv", "s.tsv", "s.parquet", "s.json"):
        assert run(monkeypatch, "score", "wine.aem", "wine.csv", "--out", name) == 0
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
    assert run(monkeypatch, "score", "wine.aem", "few.parquet", *arguments) == 0
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
        assert run(monkeypatch, "score", "wine.aem", "-", "--json") == 0
        rows = json.loads(capsysbinary.readouterr().out)
        np.testing.assert_array_equal(
            [row["log_density"] for row in rows], fitted.score_samples(wine)
        )


@pytest.mark.parametrize("kind", ["tsv", "semicolons", "gz", "zst", "feather", "npy", "utf-16"])
def test_every_kind_of_table_on_standard_input(
    kind: str,
    folder: Path,
    wine: pd.DataFrame,
    fitted: AEMDensity,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    content, text = io.BytesIO(), wine.to_csv(index=False).encode()
    if kind == "feather":
        wine.to_feather(content)
    elif kind == "npy":
        np.save(content, wine.to_numpy())
    else:
        texts = {
            "tsv": wine.to_csv(index=False, sep="\t").encode(),
            "semicolons": wine.to_csv(index=False, sep=";", decimal=",").encode(),
            "gz": gzip.compress(text),
            "zst": pa.compress(text, "zstd", asbytes=True),
            "utf-16": text.decode().encode("utf-16"),
        }
        content.write(texts[kind])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.getvalue())))
    assert run(monkeypatch, "score", "wine.aem", "-", "--json") == 0
    rows = json.loads(capsysbinary.readouterr().out)
    np.testing.assert_array_equal([row["log_density"] for row in rows], fitted.score_samples(wine))


@pytest.mark.parametrize("command", ["fit", "score", "evaluate", "report"])
def test_a_delimiter_may_be_given(
    command: str,
    folder: Path,
    wine: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wine.to_csv("colons.csv", index=False, sep=":")
    model = [] if command == "fit" else ["wine.aem"]
    out = {"fit": "o.aem", "score": "o.csv", "evaluate": "o.json", "report": "o.html"}[command]
    arguments = [command, *model, "colons.csv", "--out", out]
    refused(arguments, "give what separates its fields with --delimiter", monkeypatch, capsys)
    refused([*arguments, "--delimiter", "::"], "'::' is no delimiter", monkeypatch, capsys)
    assert run(monkeypatch, *arguments, "--delimiter", ":") == 0
    assert Path(out).exists()


@pytest.mark.parametrize("command", ["fit", "score", "evaluate", "report"])
def test_row_labels_are_told_once_and_left_out(
    command: str,
    folder: Path,
    wine: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wine.to_csv("labelled.csv")
    wine.drop(index=3).to_parquet("labelled.parquet")
    model = [] if command == "fit" else ["wine.aem"]
    out = {"fit": "o.aem", "score": "o.csv", "evaluate": "o.json", "report": "o.html"}[command]
    for name, label in (("csv", "without a name"), ("parquet", "'__index_level_0__'")):
        assert run(monkeypatch, command, *model, f"labelled.{name}", "--out", out) == 0
        told = f"labelled.{name}: its column {label} was taken for row labels and left out"
        assert capsys.readouterr().err == f"aem: {told}\n"
    if command == "fit":
        assert TableModel.load("o.aem").columns == tuple(COLUMNS)
        assert run(monkeypatch, "score", "o.aem", "labelled.csv", "--out", "a.csv") == 0
        assert run(monkeypatch, "score", "o.aem", "wine.csv", "--out", "b.csv") == 0
        assert Path("a.csv").read_text() == Path("b.csv").read_text()


def test_samples_have_the_types_of_the_table(
    folder: Path,
    wine: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hues = (wine["hue"] > 1).rename("red")
    table = wine.assign(magnesium=wine["magnesium"].astype(int), hue=wine["hue"].astype("float32"))
    table.join(hues).to_parquet("t.parquet")
    fit = ("fit", "t.parquet", "--out", "t.aem", "--components", "1", "-q")
    assert run(monkeypatch, *fit) == 0
    assert run(monkeypatch, "sample", "t.aem", "-n", "20", "--out", "s.parquet", "-q") == 0
    drawn = pd.read_parquet("s.parquet")
    types = ["float64", "int64", "float32", "bool"]
    assert list(map(str, drawn.dtypes)) == types
    assert not capsys.readouterr().out
    assert run(monkeypatch, "sample", "t.aem", "-n", "20", "--json") == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert [type(first[name]) for name in drawn] == [float, int, float, bool]
    # The estimators and the command line draw the same.
    density = AEMDensity(components=1).fit(table.join(hues))
    pd.testing.assert_frame_equal(density.sample(20, random_state=0), drawn)
    density.save("d.aem")
    assert TableModel.load("d.aem").dtypes == TableModel.load("t.aem").dtypes
    # What is drawn can be scored again.
    assert run(monkeypatch, "score", "t.aem", "s.parquet", "--out", "s.csv", "-q") == 0


def test_dropped_columns_are_remembered(
    folder: Path, wine: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    wine.assign(name="Barolo").to_csv("named.csv", index=False)
    fit = ("fit", "named.csv", "--drop", "name", "--out", "m.aem", "--components", "1")
    assert run(monkeypatch, *fit) == 0
    assert run(monkeypatch, "score", "m.aem", "named.csv", "--out", "a.csv") == 0
    assert run(monkeypatch, "score", "m.aem", "wine.csv", "--out", "b.csv") == 0
    assert Path("a.csv").read_text() == Path("b.csv").read_text()


def test_json_of_fit_and_of_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ("fit", "wine.csv", "--out", "m.aem", "--components", "1", "--json")
    assert run(monkeypatch, *fit) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["rows"] == 178
    assert [column["column"] for column in record["discrete"]] == ["magnesium", "hue"]
    sample = ("sample", "m.aem", "-n", "3", "--out", "s.parquet", "--json")
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


def test_numbers_as_names_are_matched_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    years = GOOD.set_axis(["2019", "2020", "2021"], axis=1)
    density = AEMDensity(components=1).fit(years)
    density.save("years.aem")
    years[["2021", "2019", "2020"]].to_csv("years.csv", index=False)
    assert run(monkeypatch, "score", "years.aem", "years.csv", "--out", "s.csv", "-q") == 0
    np.testing.assert_array_equal(read("s.csv")["log_density"], density.score_samples(years))
    years.set_axis(["2019", "2020", "2022"], axis=1).to_csv("other.csv", index=False)
    refused(["score", "years.aem", "other.csv"], "no column '2021'", monkeypatch, capsys)


def test_a_first_line_taken_as_a_row_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    GOOD.to_csv("bare.csv", index=False, header=False)
    assert run(monkeypatch, "fit", "bare.csv", "--out", "m", "--components", "1", "--json") == 0
    said = capsys.readouterr()
    assert "its first line was taken as a row, its columns as 'x1', 'x2', 'x3'" in said.err
    assert len(said.err.splitlines()) == 1
    assert json.loads(said.out)["first_line_is_a_row"] is True
    assert run(monkeypatch, "score", "wine.aem", "bare.csv", "--out", "s.csv") == 0
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
    assert run(monkeypatch, "evaluate", "wine.aem", "[x].csv", *few) == 0
    assert "wine.aem on [x].csv" in " ".join(capsys.readouterr().out.split())


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
