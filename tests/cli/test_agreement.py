"""What one command writes another opens, and they say the same about it."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from aem import AEMOutlierDetector, TableModel
from aem.tables.ensemble import TableEnsemble
from aem.tables.files import load_table
from aem.vae import save_prior
from tests.support.running import refused, run
from tests.support.tables import ENSEMBLES, MODELS, NAMES, rows_for, sizes, unnamed

KEPT = Path(__file__).parents[1] / "kept" / "0.1"


def save(make: Callable[[], TableModel | TableEnsemble]) -> Callable[[Path], None]:
    return lambda path: make().save(path)


def write_detector(path: Path) -> None:
    frame = pd.DataFrame(sizes(120, 1), columns=list(NAMES))[["size", "count"]]
    AEMOutlierDetector(components=2).fit(frame).save(path)


def write_prior(path: Path) -> None:
    save_prior(unnamed().model, torch.nn.Linear(1, 1), path)


def copy(name: str) -> Callable[[Path], object]:
    return lambda path: shutil.copy(KEPT / name, path)


FILES: dict[str, Callable[[Path], object]] = {
    **{name: save(make) for name, make in MODELS.items()},
    **{name: save(make) for name, make in ENSEMBLES.items()},
    "detector": write_detector,
    "prior": write_prior,
    **{f"0.1: {n}": copy(n) for n in ("table.aem", "detector.aem", "ensemble.safetensors")},
}
DISCRETE = ("discrete", "all", "reordered", "ensemble", "detector", "0.1: table.aem")
SINGLE = ("unnamed", "whitened", "all", "reordered", "detector", "prior", "0.1: table.aem")


def put(name: str, rows: int = 30) -> tuple[TableModel | TableEnsemble, np.ndarray]:
    """The file m.aem and a table rows.csv in this folder, its columns the other way round."""
    FILES[name](Path("m.aem"))
    table = load_table("m.aem")
    values = rows_for(table, rows)
    frame = pd.DataFrame(values, columns=list(table.columns))
    frame[frame.columns[::-1]].to_csv("rows.csv", index=False)
    return table, values


@pytest.mark.parametrize("name", FILES)
def test_evaluate_and_score_agree(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Within the errors that both state; importance sampling within its noise."""
    monkeypatch.chdir(tmp_path)
    table, values = put(name)
    assert run(monkeypatch, "score", "m.aem", "rows.csv") == 0
    scores = pd.read_csv(io.BytesIO(capsysbinary.readouterr().out))
    own = table.score(values)
    np.testing.assert_array_equal(scores["log_density"], own.total)
    few = ("--samples", "2000", "--kde-samples", "0", "--json")
    assert run(monkeypatch, "evaluate", "m.aem", "rows.csv", *few) == 0
    record = json.loads(capsysbinary.readouterr().out)
    error = record["test_log_prob_error"] + scores["error"].mean() + 1e-12
    assert abs(record["test_log_prob"] - scores["log_density"].mean()) <= error
    sampled = record["importance_log_prob"] - record["importance_bias"]
    noise = 2 * record["importance_noise_2se"] + record["test_log_prob_error"]
    rounding = 1e-6 * max(abs(record["test_log_prob"]), 1)  # draws are weighed in single precision
    assert abs(sampled - record["test_log_prob"]) <= noise + rounding
    assert record["rows"] == len(values)


@pytest.mark.parametrize("name", DISCRETE)
def test_evaluate_says_why_there_are_no_kernels(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    put(name, 12)
    sentence = (
        "AEM-KDE is a density of values, and this table has discrete columns: it has no score"
    )
    for kernels, said in (("5", True), ("0", False)):
        options = ("--samples", "5", "--kde-samples", kernels)
        assert run(monkeypatch, "evaluate", "m.aem", "rows.csv", *options) == 0
        assert (sentence in " ".join(capsys.readouterr().out.split())) is said
    assert run(monkeypatch, "evaluate", "m.aem", "rows.csv", *options, "--json") == 0
    assert json.loads(capsys.readouterr().out)["kde_log_prob"] is None


@pytest.mark.parametrize("name", FILES)
def test_what_sample_draws_score_reads(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    FILES[name](Path("m.aem"))
    table = load_table("m.aem")
    sample = ("sample", "m.aem", "-n", "9", "--seed", "4", "--out", "s.parquet", "--quiet")
    assert run(monkeypatch, *sample) == 0
    drawn = pd.read_parquet("s.parquet")
    assert list(drawn.columns) == list(table.columns)
    np.testing.assert_array_equal(drawn.to_numpy(), table.sample(9, 4))
    assert run(monkeypatch, "score", "m.aem", "s.parquet", "--json") == 0
    found = json.loads(capsysbinary.readouterr().out)
    np.testing.assert_array_equal(
        [row["log_density"] for row in found], table.score(drawn.to_numpy()).total
    )


@pytest.mark.parametrize("name", SINGLE)
def test_report_and_explain_read_every_single_model(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    _, values = put(name)
    options = ("--out", "r.html", "--json")
    assert run(monkeypatch, "report", "m.aem", "rows.csv", *options) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == len(values)
    assert run(monkeypatch, "score", "m.aem", "rows.csv", "--explain", "--out", "e.csv") == 0
    lines = pd.read_csv("e.csv")
    assert set(lines["row"]) == set(range(len(values)))


@pytest.mark.parametrize("name", ["ensemble", "turned"])
def test_an_ensemble_has_no_terms_to_explain(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    put(name)
    explain = ["score", "m.aem", "rows.csv", "--explain", "--out", "e.csv"]
    refused(explain, "m.aem is an ensemble, whose columns have no terms", monkeypatch, capsys)
    report = ["report", "m.aem", "rows.csv", "--out", "r.html"]
    refused(report, "it holds an ensemble", monkeypatch, capsys)


def test_a_model_that_mixes_its_columns_is_not_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    turned = ENSEMBLES["turned"]().members[1]
    turned.save("m.aem")
    pd.DataFrame(rows_for(turned), columns=list(turned.columns)).to_csv("rows.csv", index=False)
    assert run(monkeypatch, "score", "m.aem", "rows.csv", "--out", "s.csv", "-q") == 0
    for command in (["score", "--explain"], ["report"]):
        out = "r.html" if command == ["report"] else "e.csv"
        arguments = [command[0], "m.aem", "rows.csv", *command[1:], "--out", out]
        refused(arguments, "mixes its columns", monkeypatch, capsys)


def test_the_order_a_model_reads_columns_in_is_not_that_of_the_table(tmp_path: Path) -> None:
    """Explained are the columns given those the model reads before them, by their own names."""
    from aem.tables.queries.explain import explain

    table = MODELS["all"]()
    rows = rows_for(table)
    expected = explain(table, rows)
    found = explain(table.in_order(NAMES[::-1]), rows[:, ::-1])
    for name in ("surprise", "median", "context"):
        np.testing.assert_array_equal(getattr(found, name)[:, ::-1], getattr(expected, name))
    assert [regions[::-1] for regions in found.regions] == expected.regions
    np.testing.assert_array_equal(found.scores.log_density[:, ::-1], expected.scores.log_density)


def test_all_commands_take_columns_without_names_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless the table has columns called x1 and x2: those are names."""
    monkeypatch.chdir(tmp_path)
    table = unnamed()
    table.save("m.aem")
    rows = rows_for(table)
    expected = table.score(rows).total
    frames = (
        pd.DataFrame(rows, columns=["b", "a"]),
        pd.DataFrame(rows[:, ::-1], columns=["x2", "x1"]),
    )
    for frame in frames:
        frame.to_csv("rows.csv", index=False)
        assert run(monkeypatch, "score", "m.aem", "rows.csv", "--out", "s.csv") == 0
        np.testing.assert_array_equal(pd.read_csv("s.csv")["log_density"], expected)
        few = ("--samples", "0", "--kde-samples", "0", "--out", "e.json")
        assert run(monkeypatch, "evaluate", "m.aem", "rows.csv", *few) == 0
        found = json.loads(Path("e.json").read_text())["test_log_prob"]
        assert found == pytest.approx(expected.mean(), abs=0.02)
    frames[0].assign(c=1.0).to_csv("rows.csv", index=False)
    capsys.readouterr()
    refused(["score", "m.aem", "rows.csv", "--out", "t.csv"], "column", monkeypatch, capsys)


def test_fit_writes_what_all_commands_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(sizes(150, 0), columns=list(NAMES)).to_csv("rows.csv", index=False)
    fit = ("fit", "rows.csv", "--out", "m.aem", "--components", "2", "--json")
    assert run(monkeypatch, *fit) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["columns"] == list(NAMES)
    assert [entry["column"] for entry in made["discrete"]] == ["count", "level"]
    assert [record["kind"] for record in made["transforms"]] == ["offset"]
    for command in (
        ("score", "m.aem", "rows.csv", "--out", "s.csv"),
        ("sample", "m.aem", "-n", "5", "--out", "d.csv"),
        ("evaluate", "m.aem", "rows.csv", "--samples", "5", "--out", "e.json"),
        ("report", "m.aem", "rows.csv", "--rows", "20", "--out", "r.html"),
    ):
        assert run(monkeypatch, *command) == 0
        assert Path(command[-1]).is_file()
