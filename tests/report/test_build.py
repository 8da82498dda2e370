"""What a report says is true of the table and the model."""

import base64
import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from aem import AemError
from aem.base.progress import silent
from aem.model.files import save_model
from aem.report import BuiltReport, Limits, build
from aem.report.calibration import calibration_record, pit_values
from aem.report.histograms import marginal
from aem.report.making import making_record
from aem.report.numbers import pack, shown_range
from aem.report.scores import screen
from aem.report.training import training_record
from aem.tables.fit.automatic import fit_table
from aem.tables.fit.settings import FitSettings
from aem.tables.model import TableModel

from .conftest import HOSTILE, LIMITS


def test_means_are_those_of_the_scores(
    made: BuiltReport, table: TableModel, rows: NDArray[np.float64]
) -> None:
    rows = rows[:60]
    everything = Limits(60, 60, 20, 5, 50, 100, listed=5)
    whole = build(table, rows, path=Path("m"), data="d", limits=everything)
    total = table.score(rows).total
    assert whole.metrics["mean_log_density"] == pytest.approx(total.mean(), abs=1e-12)
    assert whole.metrics["lowest_row"] == int(total.argmin())
    assert whole.metrics["mean_log_density_2se"] == pytest.approx(
        2 * total.std(ddof=1) / math.sqrt(len(total))
    )
    assert made.metrics["rows_scored"] == LIMITS.scored


def test_the_odd_row_is_found_by_screening_and_its_column_blamed(made: BuiltReport) -> None:
    listed = made.record["surprises"]["rows"]
    assert listed[0]["row"] == 17
    assert listed[0]["blame"][0]["column"] in (0, 1)
    scores = [row["log_density"] for row in listed]
    assert scores == sorted(scores)
    assert len(listed) == LIMITS.listed


def test_screening_agrees_with_scores(table: TableModel, rows: NDArray[np.float64]) -> None:
    estimate, exact = screen(table, rows[:60], silent), table.score(rows[:60]).total
    assert np.corrcoef(estimate, exact)[0, 1] > 0.98


def test_columns_left_out_of_the_fit_are_named(table: TableModel) -> None:
    known = TableModel(
        table.model, table.transform, table.discrete, columns=table.columns, left_out=("id", "name")
    )
    made = making_record(known, Path("m.aem"), "d", LIMITS, 0)
    assert ("columns left out", "id, name") in made["origin"]


def test_pictured_conditionals_are_densities(made: BuiltReport) -> None:
    for row in made.record["surprises"]["rows"]:
        for entry in row["blame"]:
            picture = entry["picture"]
            height = np.array(picture["height"], dtype=float)
            if picture["kind"] == "cells":
                assert height.sum() == pytest.approx(1, abs=0.02)
                continue
            assert picture["at"][0] <= entry["value"] <= picture["at"][-1]
            width = np.diff(np.array(picture["at"], dtype=float))
            mass = float((width * (height[1:] + height[:-1]) / 2).sum())
            assert mass == pytest.approx(1, abs=0.15)


def test_pit_values_of_samples_are_uniform(table: TableModel) -> None:
    drawn = table.sample(300, seed=1)
    u = pit_values(table, drawn, np.random.default_rng(0), silent)
    assert u.shape == drawn.shape
    for d in range(u.shape[1]):
        assert kstest(u[:, d], "uniform").pvalue > 1e-3
    assert not any(column["off"] for column in calibration_record(u)["columns"])


def test_a_shifted_column_is_called_off() -> None:
    rng = np.random.default_rng(0)
    u = np.stack((rng.random(400), rng.random(400) ** 0.5, rng.beta(3, 3, 400)), 1)
    first, second, third = calibration_record(u)["columns"]
    assert not first["off"]
    assert second["off"] and "higher" in second["shape"]
    assert third["off"] and "less" in third["shape"]


def test_marginals_share_bins_and_count_what_lies_beyond() -> None:
    rng = np.random.default_rng(0)
    data, samples = rng.standard_cauchy(2000), rng.standard_normal(1000)
    found = marginal(data, samples, None)
    assert sum(found["data"]) + found["beyond"][0] == pytest.approx(1, abs=0.01)
    assert found["beyond"][0] > 0
    assert found["distance"] > found["chance"]


def test_discrete_columns_get_a_bin_a_value(made: BuiltReport, rows: NDArray[np.float64]) -> None:
    found = made.record["marginals"]["columns"][2]
    centres = (np.array(found["edges"][1:]) + np.array(found["edges"][:-1])) / 2
    np.testing.assert_allclose(centres, np.round(centres))
    at_one = (rows[:, 2] == 1).mean()
    assert found["data"][int(np.argmin(np.abs(centres - 1)))] == pytest.approx(at_one, abs=1e-4)


def test_packing_keeps_places() -> None:
    x = np.array([[0.0, 5.0], [1.0, 6.0], [0.25, 99.0]])
    packed = pack(x, [(0.0, 1.0), (5.0, 7.0)])
    places = np.frombuffer(base64.b64decode(packed), dtype="<u2").reshape(2, 3)
    np.testing.assert_allclose(places[0] / 65533, x[:, 0], atol=1e-4)
    assert places[1].tolist()[2] == 65535


def test_a_constant_column_has_an_axis() -> None:
    for value in (0.0, 3.0, -1e20):
        low, high = shown_range(np.full(5, value))
        assert low < value < high


def test_history_comes_from_the_file_or_the_folder(
    made: BuiltReport, table: TableModel, tmp_path: Path
) -> None:
    own = made.record["training"]
    assert own["source"] == "the model file" and len(own["step"]) == len(own["loss"])
    assert own["energy_from"] == 0
    names = ("model.aem", "model.safetensors")  # the second in folders of versions before 0.2
    for name in names:
        assert "missing" in training_record({}, tmp_path / name)
    history = [{"step": 5, "loss": 1.0, "validation_log_prob": float("nan")}]
    (tmp_path / "metrics.json").write_text(
        json.dumps(
            {
                "training": {"history": history, "best_step": 5},
                "config": {"model": {"proposal": "mixture"}, "train": {"warmup": 3}},
            }
        )
    )
    for name in names:
        beside = training_record({}, tmp_path / name)
        assert beside["energy_from"] == 3
        assert beside["source"] == "metrics.json" and beside["validation_log_prob"] == [None]
    assert "missing" in training_record({}, tmp_path / "another.aem")


def test_models_without_a_network_or_a_record_say_so(
    rows: NDArray[np.float64], table: TableModel, tmp_path: Path
) -> None:
    alone = fit_table(rows, HOSTILE, settings=FitSettings(components=1, steps=0)).table
    limits = Limits(300, 20, 10, 5, 50, 100, listed=3)
    made = build(alone, rows, path=Path("m"), data="d", limits=limits)
    assert "mixture alone" in made.record["training"]["missing"]
    save_model(table.model, tmp_path / "bare.aem")
    bare = build(
        TableModel.load(tmp_path / "bare.aem"), rows, path=Path("m"), data="d", limits=limits
    )
    assert "Neither" in bare.record["training"]["missing"]


def test_limits_keep_large_tables_bounded() -> None:
    small, large = Limits.for_table(50, 3), Limits.for_table(10**7, 200)
    assert small.scored == small.screened == small.calibrated == 50
    assert large.scored * 200 <= 60_000 and large.pictured * 200 <= 60_000
    assert Limits.for_table(100, 3, 10**6).scored == 100
    with pytest.raises(AemError, match="two scored rows"):
        Limits.for_table(100, 3, 1)


def test_one_row_is_refused(table: TableModel, rows: NDArray[np.float64]) -> None:
    with pytest.raises(AemError, match="one row"):
        build(table, rows[:1], path=Path("m"), data="d")
