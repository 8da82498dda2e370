"""`aem reproduce gas-10k` from the command line to its metrics, stopped and started again."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aem.cli import main
from aem.data import registry
from aem.model.aem import AEM
from aem.model.files import load_model
from aem.model.transforms.offset import Offset
from aem.paper.tables import members
from aem.tables.ensemble import TableEnsemble, mixture_log_prob
from aem.tables.files import load_table
from aem.tables.fit import plan
from aem.tables.model import TableModel
from aem.training.loop import fit
from tests.support.running import run as command

TINY = (
    "task.train_rows=400",
    "task.validation_rows=60",
    "task.test_rows=30",
    "model.hidden=16",
    "model.energy_hidden=8",
    "model.gamma=8",
    "model.components=2",
    "model.frequencies=2",
    "model.blocks=1",
    "model.energy_blocks=1",
    "train.batch_size=32",
    "train.steps=20",
    "train.validate_every=10",
    "train.device=cpu",
    "evaluate.quadrature_rows=20",
    "evaluate.refinement_rows=4",
    "evaluate.importance_rows=10",
    "evaluate.importance_samples=200",
    "evaluate.kde_rows=10",
    "evaluate.kde_samples=100",
    "evaluate.kde_fit_rows=10",
    "evaluate.validation_rows=8",
    "evaluate.seconds=0",
)

pytestmark = pytest.mark.usefixtures("gas_subset")


def run(monkeypatch: pytest.MonkeyPatch, out: Path, *settings: str, flags: str = "") -> int:
    words = [word for value in (*TINY, *settings) for word in ("--set", value)]
    arguments = ["aem", "reproduce", "gas-10k", "--out", str(out), *flags.split(), *words]
    monkeypatch.setattr(sys, "argv", arguments)
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def metrics(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "metrics.json").read_text()))


def test_everything_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    assert run(monkeypatch, out, flags="--quiet") == 0
    record = metrics(out)
    for key in ("task", "preset", "command", "config", "seed", "device", "commit", "seconds"):
        assert key in record
    assert record["rows"] == {"train": 400, "validation": 60, "test": 30}
    rows = {"proposal": 30, "quadrature": 20, "importance": 10, "kde": 10}
    for score, count in rows.items():
        found = record["test"][score]
        assert found["rows"] == count
        assert found["worst"] <= found["median"]
        assert math.isfinite(found["mean"])
        assert found["two_se"] > 0
    assert record["validation"]["quadrature"]["rows"] == 8
    assert record["test_log_prob"] == record["test"]["quadrature"]["mean"]
    assert 0 <= record["test_log_prob_error"] <= 1e-3
    # 200 draws scatter, but they estimate the same thing as the quadrature.
    paired = record["test"]["importance"]["above_quadrature"]
    assert abs(paired["mean"]) < 0.2
    assert record["refinement"]["held_still"] in (True, False)
    model = load_model(out / "model.aem")
    test = torch.from_numpy(registry.load("gas-10k").test[:20])
    log_prob = model().log_prob(test).double()
    assert float(log_prob.mean()) == pytest.approx(record["test_log_prob"], abs=1e-4)


def test_a_finished_run_of_an_earlier_version_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model is called model.safetensors, and is neither trained nor written again."""
    assert run(monkeypatch, tmp_path, flags="--quiet") == 0
    earlier = tmp_path / "model.safetensors"
    (tmp_path / "model.aem").rename(earlier)
    content, score = earlier.read_bytes(), metrics(tmp_path)["test_log_prob"]
    assert run(monkeypatch, tmp_path, flags="--quiet --evaluate-only") == 0
    assert metrics(tmp_path)["test_log_prob"] == score
    assert earlier.read_bytes() == content
    assert not (tmp_path / "model.aem").exists()


def test_a_stopped_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert run(monkeypatch, whole, flags="--quiet") == 0
    eager = "aem.training.steps.EagerStep.__call__"
    from aem.training.steps import EagerStep

    plain = EagerStep.__call__

    def killed(self: EagerStep, step: int, indices: torch.Tensor) -> torch.Tensor:
        if step == 15:
            raise KeyboardInterrupt
        return plain(self, step, indices)

    with monkeypatch.context() as patch:
        patch.setattr(eager, killed)
        patch.setattr("aem.training.checkpoint.device_name", lambda device: "another machine")
        often = "train.checkpoint_seconds=0"
        assert run(monkeypatch, stopped, often, flags="--quiet") == 130
    assert "interrupted at step 15" in capsys.readouterr().err
    assert not (stopped / "model.aem").exists()
    # What there is can be looked at before the run goes on.
    assert run(monkeypatch, stopped, flags="--quiet --evaluate-only") == 0
    assert metrics(stopped)["training"][0]["unfinished"]
    assert metrics(stopped)["training"][0]["best_step"] == 10
    assert metrics(stopped)["training"][0]["device"] == "another machine"
    # Other rows would be another run, although the model looks the same.
    capsys.readouterr()
    for flags in ("--quiet", "--quiet --evaluate-only"):
        assert run(monkeypatch, stopped, "task.validation_rows=9", flags=flags) == 2
        assert "task.validation_rows" in capsys.readouterr().err
    assert run(monkeypatch, stopped, flags="--quiet") == 0
    assert metrics(stopped)["test_log_prob"] == metrics(whole)["test_log_prob"]
    assert "unfinished" not in metrics(stopped)["training"][0]


def test_a_finished_model_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    assert run(monkeypatch, out, flags="--quiet") == 0
    first = metrics(out)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing is left to do")

    monkeypatch.setattr("aem.paper.tables.members.fit", never)
    with monkeypatch.context() as patch:
        for score in ("quadrature", "importance", "kde", "proposal", "fit_kde"):
            patch.setattr(f"aem.tables.scores.TableScores.{score}", never)
        assert run(monkeypatch, out, flags="--quiet") == 0
        assert metrics(out)["test"] == first["test"]
        # Fewer rows are a part of what is there.
        assert run(monkeypatch, out, "evaluate.quadrature_rows=12", flags="--quiet") == 0
        assert metrics(out)["test"]["quadrature"]["rows"] == 12
    # More rows are added to it, in the table on the screen as well.
    assert run(monkeypatch, out, "evaluate.importance_rows=25") == 0
    assert metrics(out)["test"]["importance"]["rows"] == 25
    # All rows scored: the estimate for the whole split is the plain mean.
    assert run(monkeypatch, out, "evaluate.quadrature_rows=30", flags="--quiet") == 0
    found = metrics(out)["test"]["quadrature"]
    assert found["whole_split"] == pytest.approx(found["mean"], abs=1e-9)


def test_time_can_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(
        "aem.paper.tables.evaluate.ENERGIES", {"cpu": 96_000}
    )  # three rows at a time
    assert run(monkeypatch, out, "evaluate.seconds=1e-9", flags="--quiet") == 0
    first = metrics(out)["test"]["quadrature"]
    assert first["rows"] == 3
    assert run(monkeypatch, out, "evaluate.seconds=1e-9", flags="--quiet") == 0
    assert metrics(out)["test"]["quadrature"]["rows"] == 6


def test_other_settings_need_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(monkeypatch, out, flags="--quiet") == 0
    assert run(monkeypatch, out, "train.steps=30", flags="--quiet") == 2
    error = capsys.readouterr().err
    assert "train.steps = 20" in error
    assert len(error.strip().splitlines()) == 1


def test_nothing_to_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path / "run", flags="--quiet --evaluate-only") == 2
    assert "nothing to evaluate" in capsys.readouterr().err


def test_absent_data_is_one_sentence(
    tmp_path: Path,
    gas_subset: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (gas_subset / "gas" / "gas_subset.npz").unlink()
    assert run(monkeypatch, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert "gas/gas_subset.npz" in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_an_ensemble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    assert run(monkeypatch, out, "ensemble.members=2", flags="--quiet") == 0
    record = metrics(out)
    assert len(record["training"]) == 2
    assert record["steps"] == 40
    ensemble = load_table(out / "ensemble.aem")
    assert isinstance(ensemble, TableEnsemble)
    first, second = (member.model.columns for member in ensemble.members)
    assert first == ensemble.columns != second
    found = ensemble.score(registry.load("gas-10k").test[:20], tolerance=1e-4).total
    assert found.mean() == pytest.approx(record["test_log_prob"], abs=1e-4)


def test_symmetries_train_and_are_averaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    for section in ("task", "ensemble"):
        assert run(monkeypatch, out, f"{section}.symmetries=2", flags="--quiet") == 2
        assert "has 1 known symmetries, not 2" in capsys.readouterr().err
    splits = registry.load("gas-10k")
    swap = np.eye(splits.train.shape[1], dtype=np.int64)[::-1].copy()
    known = replace(splits, symmetries=(swap @ swap, swap))
    monkeypatch.setattr(registry, "load", lambda name: known)
    trained_on = []

    def watched(model: AEM, train: Any, *rest: Any, **named: Any) -> Any:
        trained_on.append(train)
        return fit(model, train, *rest, **named)

    monkeypatch.setattr(members, "fit", watched)
    out = tmp_path / "both"
    both = ("task.symmetries=2", "ensemble.symmetries=2")
    assert run(monkeypatch, out, *both, flags="--quiet") == 0
    record = metrics(out)
    model = load_model(out / "model.aem")
    train_rows = len(trained_on[0]) // 2
    np.testing.assert_array_equal(trained_on[0][:train_rows], known.train[:train_rows])
    np.testing.assert_array_equal(trained_on[0][train_rows:], known.train[:train_rows, ::-1])
    rows = torch.from_numpy(splits.test[:20]).double()
    views = torch.stack([model().log_prob(rows), model().log_prob(rows.flip(-1))])
    assert float(mixture_log_prob(views).mean()) == pytest.approx(record["test_log_prob"], abs=1e-4)


def test_members_may_find_their_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of heavy tails too: scores are in the units of the table, and the files know how."""
    splits = registry.load("gas-10k")
    crowded = replace(
        splits, **{n: getattr(splits, n) ** 5 for n in ("train", "validation", "test")}
    )
    monkeypatch.setattr(registry, "load", lambda name: crowded)
    monkeypatch.setattr(plan, "FEWEST_ROWS_TO_TRAIN", 300)
    out = tmp_path / "run"
    own = ("ensemble.automatic=true", "ensemble.members=2", "evaluate.kde_rows=0")
    assert run(monkeypatch, out, *own, flags="--quiet --evaluate-only") == 2
    assert "nothing to evaluate" in capsys.readouterr().err
    assert run(monkeypatch, out, *own, flags="--quiet") == 0
    first = metrics(out)
    files = [out / f"member-{place}" / "model.aem" for place in (0, 1)]
    tables = [TableModel.load(file) for file in files]
    assert tables[0].transform.parts
    rows = crowded.test[:20].astype(np.float64)
    orders = [[splits.columns.index(name) for name in table.columns] for table in tables]
    scores = [t.score(rows[:, order]).total for t, order in zip(tables, orders, strict=True)]
    together = mixture_log_prob(torch.from_numpy(np.stack(scores)))
    assert first["test_log_prob"] == pytest.approx(float(together.mean()), abs=1e-2)
    assert run(monkeypatch, out, *own, flags="--quiet") == 0
    assert metrics(out)["test"] == first["test"]
    capsys.readouterr()
    assert run(monkeypatch, out, "ensemble.members=2", flags="--quiet") == 2
    assert "ensemble.automatic = True" in capsys.readouterr().err


def said_by_commands(
    file: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[float, float, float]:
    """Mean log densities: `aem score`, `aem evaluate` of the same rows, and of the split by name."""
    capsys.readouterr()
    scores = rows.with_suffix(".json")
    assert command(monkeypatch, "score", str(file), str(rows), "--out", str(scores)) == 0
    each = [row["log_density"] for row in json.loads(scores.read_text())]
    assert command(monkeypatch, "sample", str(file), "-n", "3") == 0
    capsys.readouterr()
    means = []
    for source in (str(rows), "gas-10k"):
        exact = ("--samples", "0", "--kde-samples", "0", "--rows", str(len(each)), "--json")
        assert command(monkeypatch, "evaluate", str(file), source, *exact) == 0
        means.append(json.loads(capsys.readouterr().out)["test_log_prob"])
    return float(np.mean(each)), *means


def test_commands_open_what_a_run_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One model, an ensemble, and its members by themselves, whose columns have other orders."""
    splits = registry.load("gas-10k")
    cut = replace(splits, test=splits.test[:20])
    monkeypatch.setattr(registry, "load", lambda name: cut)
    rows = tmp_path / "rows.csv"
    pd.DataFrame(cut.test.astype(np.float64), columns=list(cut.columns)).to_csv(rows, index=False)
    one, several = tmp_path / "one", tmp_path / "several"
    few = ("evaluate.importance_rows=0", "evaluate.kde_rows=0", "evaluate.quadrature_rows=20")
    assert run(monkeypatch, one, *few, flags="--quiet") == 0
    assert run(monkeypatch, several, *few, "ensemble.members=2", flags="--quiet") == 0
    for file, folder in (
        (one / "model.aem", one),
        (several / "ensemble.aem", several),
        (several / "member-1" / "model.aem", None),
    ):
        found = said_by_commands(file, rows, monkeypatch, capsys)
        assert found[1:] == pytest.approx(found[:1] * 2, abs=1e-2)
        assert found[1] == pytest.approx(found[2], abs=1e-9)
        if folder is not None:
            assert found[1] == pytest.approx(metrics(folder)["test_log_prob"], abs=1e-3)


def test_automatic_members_may_have_discrete_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And offsets, each member in its own order; AEM-KDE is left out, everything else agrees."""
    splits = registry.load("gas-10k")

    def counted(table: Any) -> Any:
        table = table[:400].copy()
        table[:, 1] = np.round(2 * table[:, 1])
        table[:, 3] = np.round(table[:, 3]) + 1e6
        return table

    known = replace(
        splits, **{n: counted(getattr(splits, n)) for n in ("train", "validation", "test")}
    )
    known = replace(known, test=known.test[:20])
    monkeypatch.setattr(registry, "load", lambda name: known)
    out, rows = tmp_path / "run", tmp_path / "rows.csv"
    pd.DataFrame(known.test.astype(float), columns=list(known.columns)).to_csv(rows, index=False)
    own = ("ensemble.automatic=true", "ensemble.members=2", "evaluate.importance_samples=500")
    assert run(monkeypatch, out, *own, flags="--quiet") == 0
    test = metrics(out)["test"]
    assert test["kde"] is None
    assert abs(test["importance"]["above_quadrature"]["mean"]) < 0.05
    ensemble = load_table(out / "ensemble.aem")
    assert isinstance(ensemble, TableEnsemble)
    assert [column.column for column in ensemble.discrete] == [known.columns[1], known.columns[3]]
    assert all(Offset.kind in [p.kind for p in m.transform.parts] for m in ensemble.members)
    found = said_by_commands(out / "ensemble.aem", rows, monkeypatch, capsys)
    assert found == pytest.approx((metrics(out)["test_log_prob"],) * 3, abs=2e-2)
    drawn = ensemble.sample(40, seed=0)
    np.testing.assert_array_equal(drawn[:, [1, 3]], np.round(drawn[:, [1, 3]]))
    assert run(monkeypatch, out, *own, flags="--quiet") == 0
    assert metrics(out)["test"] == test


def test_a_literal_energy_without_decay_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    literal = ("model.energy=literal", "train.estimator=importance", "train.stratified=false")
    assert run(monkeypatch, out, *literal) == 0
    found = metrics(out)["test"]["quadrature"]
    assert 0 <= found["rows_without_density"] <= found["rows"] == 20
