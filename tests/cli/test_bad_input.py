"""Bad tables, models and numbers: one sentence, code 2, and nothing half-written."""

import io
from pathlib import Path

import numpy as np
import pytest

from aem.base.files import FORMAT_VERSION, read_tensors, write_tensors
from tests.support.running import GOOD, refused, run, text_of

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
        arguments = ["fit", "table.csv", "--out", "out.aem", "--components", "1"]
    else:
        arguments = ["score", "wine.aem", "table.csv", "--out", "out.csv", "--explain"]
    refused(arguments, culprit, monkeypatch, capsys)


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
    refused(["score", "wine.aem", "table.csv", "--out", "o.csv"], culprit, monkeypatch, capsys)


def test_empty_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    refused(["score", "wine.aem", "-"], "standard input is empty", monkeypatch, capsys)


def test_models_that_are_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = Path("wine.aem").read_bytes()
    Path("short.aem").write_bytes(content[: len(content) // 2])
    Path("foreign.aem").write_bytes(b"GIF89a" + bytes(1000))
    Path("empty.aem").write_bytes(b"")
    tensors, metadata = read_tensors(Path("wine.aem"), "model")
    newer = {**metadata, "format_version": FORMAT_VERSION + 1}
    write_tensors(Path("newer.aem"), tensors, newer)
    one = "standardisation.shift"
    write_tensors(Path("partial.aem"), {one: tensors[one]}, metadata)
    cases = {
        "short.aem": "short.aem",
        "foreign.aem": "foreign.aem",
        "empty.aem": "empty.aem",
        "newer.aem": f"format version {FORMAT_VERSION + 1}",
        "partial.aem": "complete",
        "missing.aem": "missing.aem",
        "wine.csv": "wine.csv",
    }
    for name, culprit in cases.items():
        refused(["score", name, "wine.csv", "--out", "o.csv"], culprit, monkeypatch, capsys)
        refused(["sample", name, "-n", "3", "--out", "o.csv"], culprit, monkeypatch, capsys)


def test_a_model_is_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["score", "-", "wine.csv"], ["sample", "-", "-n", "3"]):
        refused(arguments, "a model cannot be read from standard input", monkeypatch, capsys)


@pytest.mark.parametrize("seed", ["-1", str(2**31), str(2**64)])
@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "wine.csv", "--out", "m"],
        ["sample", "wine.aem", "-n", "3"],
        ["report", "wine.aem", "wine.csv", "--out", "r.html"],
        ["evaluate", "wine.aem", "wine.csv"],
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
