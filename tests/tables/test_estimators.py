"""The scikit-learn face: conventions, frames in and out, the same number everywhere."""

import os
import pickle
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from aem import AEMDensity, AemError, AEMOutlierDetector, TableModel
from aem.errors import AccuracyWarning
from aem.model.files import load_model

polars = pytest.importorskip("polars")

CHECKS = """
import json
import torch
torch.set_num_threads(1)
from sklearn.utils.estimator_checks import check_estimator
from aem import AEMDensity, AEMOutlierDetector
for estimator in (AEMDensity(), AEMOutlierDetector(components=2)):
    for result in check_estimator(estimator, on_fail=None, on_skip=None):
        if result["status"] != "passed":
            print(type(estimator).__name__, result["check_name"], result["status"])
            print(result["exception"])
"""


def test_check_estimator_is_clean() -> None:
    # One check is skipped unless SciPy was told about array namespaces before it was imported.
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", CHECKS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout


@pytest.fixture(scope="module")
def wine() -> pd.DataFrame:
    frame: pd.DataFrame = load_wine(as_frame=True).data
    return frame[["alcohol", "magnesium", "flavanoids", "color_intensity"]]


@pytest.fixture(scope="module")
def density(wine: pd.DataFrame) -> AEMDensity:
    return AEMDensity(components=2).fit(wine)


def test_import_is_lazy() -> None:
    code = "import sys, aem; assert 'sklearn' not in sys.modules; aem.AEMDensity; aem.TableModel"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_thousand_rows_need_no_network() -> None:
    x = np.random.default_rng(0).normal(size=(999, 5)) @ np.triu(np.ones((5, 5)))
    assert AEMDensity().fit(x).model_.about["network"] is None


def test_clone_pipeline_and_grid_search(wine: pd.DataFrame) -> None:
    estimator = clone(AEMDensity(components=1, steps=0))
    assert estimator.get_params()["components"] == 1
    pipeline = make_pipeline(StandardScaler(), estimator).fit(wine)
    assert pipeline.score_samples(wine).shape == (len(wine),)
    search = GridSearchCV(estimator, {"components": [1, 2]}, cv=2).fit(wine)
    assert search.best_params_["components"] in (1, 2)
    detector = make_pipeline(StandardScaler(), AEMOutlierDetector(components=1)).fit(wine)
    assert set(detector.predict(wine)) == {-1, 1}


def test_the_same_state_gives_the_same_model(wine: pd.DataFrame, density: AEMDensity) -> None:
    again = clone(density).fit(wine)
    np.testing.assert_array_equal(again.score_samples(wine), density.score_samples(wine))
    np.testing.assert_array_equal(
        again.sample(5, random_state=3), density.sample(5, random_state=3)
    )


def test_networks_are_trained_and_reproducible() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=1100)
    x = np.stack((a, np.sin(3 * a) + 0.05 * rng.normal(size=1100)), axis=1)
    estimator = AEMDensity(
        steps=150, batch_size=128, components=4, hidden=16, frequencies=3, learning_rate=3e-3
    )
    fitted = [clone(estimator).fit(x) for _ in range(2)]
    network = fitted[0].model_.about["network"]
    assert network["kept"]
    assert network["validation_log_prob"] > network["mixture_validation_log_prob"] + 0.5
    np.testing.assert_array_equal(fitted[0].score_samples(x[:9]), fitted[1].score_samples(x[:9]))
    alone = AEMDensity(steps=0, components=4).fit(x)
    assert alone.model_.about["network"] is None


def test_densities_are_in_the_units_of_the_data(wine: pd.DataFrame, density: AEMDensity) -> None:
    assert density.discrete_ == ["magnesium"]
    in_percent = wine.assign(alcohol=wine["alcohol"] / 100)
    other = clone(density).fit(in_percent).score_samples(in_percent)
    np.testing.assert_allclose(other, density.score_samples(wine) + np.log(100), atol=0.02)


def test_outliers(wine: pd.DataFrame) -> None:
    detector = AEMOutlierDetector(contamination=0.05, components=2).fit(wine)
    assert (detector.predict(wine) == -1).sum() == pytest.approx(0.05 * len(wine), abs=1)
    odd = wine.iloc[:1].assign(alcohol=30.0)
    assert detector.decision_function(odd)[0] < 0
    assert detector.predict(odd)[0] == -1
    with pytest.raises(ValueError, match="contamination"):
        AEMOutlierDetector(contamination=0.7).fit(wine)


def test_new_rows_are_outliers_no_more_often_than_was_said() -> None:
    # Few rows for their columns: by the scores of its own rows half as many more would be.
    flagged, by_own_rows = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shape = rng.normal(size=(25, 25))
        x, new = (rng.normal(size=(rows, 25)) @ shape for rows in (100, 1000))
        detector = AEMOutlierDetector(contamination=0.1, components=1).fit(x)
        flagged.append((detector.predict(new) == -1).mean())
        own = np.quantile(detector.score_samples(x), 0.1)
        by_own_rows.append((detector.score_samples(new) < own).mean())
    assert np.mean(by_own_rows) > 0.13
    assert np.mean(flagged) < 0.12


def test_outliers_that_stand_together_do_not_become_normal() -> None:
    # A tight cluster off the correlation of the rest: a density of all rows finds it most likely.
    rng = np.random.default_rng(0)
    usual = rng.normal(size=(500, 2)) @ np.array([[1.0, 0.9], [0.0, 0.4]])
    x = np.vstack((usual, rng.normal([1.5, -1.5], 0.05, size=(25, 2))))
    together = slice(500, None)
    density = AEMDensity().fit(x).score_samples(x)
    assert np.median(density[together]) > np.median(density)
    assert (AEMOutlierDetector(contamination=0.1).fit_predict(x)[together] == -1).all()


def test_new_rows_are_outliers_as_often_after_training_networks() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=4000)
    x = np.stack((a, a**2 + 0.1 * rng.normal(size=4000)), axis=1)
    detector = AEMOutlierDetector(steps=100, components=4, hidden=32, frequencies=2).fit(x[:2000])
    assert detector.model_.about["network"] is not None
    assert 0.06 < (detector.predict(x[2000:]) == -1).mean() < 0.15


@pytest.mark.parametrize("steps", [0, 20])
def test_columns_far_from_zero(steps: int, tmp_path: Any) -> None:
    # Times in seconds: single precision cannot tell 1.7e9 from 1.7e9 + 50.
    rng = np.random.default_rng(0)
    a = rng.normal(size=1000)
    near = np.stack((a, np.round(3 * a + 3 * rng.normal(size=1000)), a**2), axis=1)
    far = near + np.array([1.7e9, 1.7e9, 0])
    estimator = AEMDensity(steps=steps, components=3, hidden=16)
    expected = clone(estimator).fit(near).score_samples(near[:50])
    fitted = clone(estimator).fit(far)
    scores = fitted.score_samples(far[:50])
    np.testing.assert_allclose(scores, expected, atol=0.02)
    drawn = fitted.sample(500, random_state=0)
    np.testing.assert_allclose(drawn.mean(0), far.mean(0), rtol=0, atol=0.6)
    np.testing.assert_allclose(drawn.std(0), far.std(0), rtol=0.2)
    lines = fitted.explain(far[:1], top=3)
    place = lines["column"].index("x1")
    assert 0 < lines["likely_high"][place] - lines["likely_low"][place] < 5
    low, high = map(float, lines["likely"][place].split(" … "))
    assert high - low > 0.5
    fitted.save(tmp_path / "far.aem")
    again = TableModel.load(tmp_path / "far.aem").score(far[:50]).total
    np.testing.assert_array_equal(again, scores)
    with pytest.raises(AemError, match=r"load it with aem\.TableModel"):
        load_model(tmp_path / "far.aem")


def test_frames_of_either_kind(wine: pd.DataFrame, density: AEMDensity) -> None:
    other = polars.from_pandas(wine)
    same = clone(density).fit(other)
    np.testing.assert_array_equal(same.score_samples(other), density.score_samples(wine))
    drawn = same.sample(4, random_state=0)
    assert isinstance(drawn, polars.DataFrame)
    assert drawn.columns == list(wine.columns)
    assert isinstance(same.explain(other.head(2)), polars.DataFrame)
    drawn = density.sample(4, random_state=0)
    assert isinstance(drawn, pd.DataFrame)
    assert list(drawn.columns) == list(wine.columns)
    assert isinstance(density.sample(1), pd.DataFrame)
    assert isinstance(clone(density).fit(wine.to_numpy()).sample(2), np.ndarray)


def test_columns_are_matched_by_name(wine: pd.DataFrame, density: AEMDensity) -> None:
    expected = density.score_samples(wine)
    np.testing.assert_array_equal(density.score_samples(wine[wine.columns[::-1]]), expected)
    np.testing.assert_array_equal(density.score_samples(wine.to_numpy()), expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop(columns="alcohol"), "no column 'alcohol'"),
        (lambda f: f.assign(more=1.0), "column 'more'"),
        (lambda f: f.assign(alcohol="strong"), "'alcohol' of the data is not numeric"),
        (lambda f: f.assign(alcohol=pd.Categorical(["a"] * len(f))), "'alcohol'"),
        (lambda f: f.assign(alcohol=np.nan, magnesium=np.nan), "'alcohol', 'magnesium'"),
        (lambda f: f.assign(alcohol=np.inf), "inf"),
        (lambda f: f.assign(alcohol=1e308), "'alcohol'"),
        (lambda f: pd.concat((f, f), axis=1), "more than one column 'alcohol'"),
    ],
)
def test_bad_frames(change: Any, said: str, wine: pd.DataFrame, density: AEMDensity) -> None:
    for ask in (density.score_samples, density.explain):
        with pytest.raises(ValueError, match=said):
            ask(change(wine))
    if said not in ("no column 'alcohol'", "column 'more'"):
        with pytest.raises(ValueError, match=said):
            clone(density).fit(change(wine))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("components", 0, "'components' must be positive, not 0"),
        ("hidden", -3, "'hidden' must be positive, not -3"),
        ("steps", -1, "'steps' must not be negative, not -1"),
    ],
)
def test_impossible_settings(name: str, value: int, said: str, wine: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=said):
        AEMDensity().set_params(**{name: value}).fit(wine)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("components", 2.5, "'components' must be a whole number, not 2.5"),
        ("components", True, "'components' must be a whole number, not True"),
        ("hidden", "x", "'hidden' must be a whole number, not 'x'"),
        ("dropout", "much", "'dropout' must be a number, not 'much'"),
        ("learning_rate", np.inf, "'learning_rate' must be a finite number, not inf"),
        ("device", None, "unknown device 'None'"),
        ("random_state", -1, "'random_state' must lie between 0 and"),
        ("random_state", 2**70, "'random_state' must lie between 0 and"),
        ("contamination", "auto", r"'contamination' must lie in \(0, 0.5\], not 'auto'"),
        ("contamination", None, r"'contamination' must lie in \(0, 0.5\], not None"),
    ],
)
def test_settings_of_the_wrong_kind(name: str, value: Any, said: str, wine: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=said):
        AEMOutlierDetector().set_params(**{name: value}).fit(wine)


def test_numbers_of_numpy_are_numbers(tmp_path: Any, wine: pd.DataFrame) -> None:
    given: dict[str, Any] = {"components": np.int64(2), "dropout": np.float32(0.5)}
    count: Any = np.int64(3)
    estimator = AEMDensity(steps=0, **given)
    estimator.fit(wine).save(tmp_path / "wine.aem")
    assert TableModel.load(tmp_path / "wine.aem").about["mixture"]["components"] == 2
    assert len(estimator.sample(count)) == 3


def test_impossible_questions(wine: pd.DataFrame, density: AEMDensity) -> None:
    counts: list[Any] = [0, -1, 2.5, "many"]
    tops: list[Any] = [0, 1.5, None]
    for count in counts:
        with pytest.raises(ValueError, match="rows to draw must be a positive whole one"):
            density.sample(count)
    for top in tops:
        with pytest.raises(ValueError, match="'top' must be a positive whole number of columns"):
            density.explain(wine, top=top)
    detector = AEMOutlierDetector(components=2).fit(wine)
    for ask in (detector.score_samples, detector.predict, detector.decision_function):
        with pytest.raises(ValueError, match=r"'alcohol' .* too extreme"):
            ask(wine.assign(alcohol=1e308))


def test_settings_that_make_no_difference_are_told(wine: pd.DataFrame) -> None:
    with pytest.warns(UserWarning, match="no network was trained, so hidden, dropout made no"):
        AEMOutlierDetector(components=1, hidden=8, dropout=0.1).fit(wine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AEMDensity(components=1, hidden=8, steps=0).fit(wine)
        AEMOutlierDetector(components=1).fit(wine)


@pytest.mark.parametrize("convert", [pd.DataFrame, polars.from_pandas, arrow.Table.from_pandas])
def test_a_column_without_any_value_is_missing(
    convert: Any, density: AEMDensity, wine: pd.DataFrame
) -> None:
    with pytest.raises(ValueError, match="'alcohol' of the data has no values"):
        density.score_samples(convert(wine.assign(alcohol=None)))


def test_arrow_tables(wine: pd.DataFrame, density: AEMDensity) -> None:
    table = arrow.Table.from_pandas(wine)
    expected = density.score_samples(wine)
    same = clone(density).fit(table)
    np.testing.assert_array_equal(same.score_samples(table), expected)
    np.testing.assert_array_equal(density.score_samples(table.select(wine.columns[::-1])), expected)
    drawn = same.sample(3, random_state=0)
    assert isinstance(drawn, arrow.Table)
    assert drawn.column_names == list(wine.columns)
    np.testing.assert_array_equal(drawn.to_pandas(), density.sample(3, random_state=0))
    lines = same.explain(table.slice(0, 2), top=1)
    assert isinstance(lines, arrow.Table)
    assert set(lines["column"].to_pylist()) <= set(wine.columns)
    with pytest.raises(ValueError, match="no column 'alcohol'"):
        same.score_samples(table.drop_columns("alcohol"))
    twice = arrow.Table.from_arrays([table["alcohol"]] * 2, names=["alcohol"] * 2)
    with pytest.raises(ValueError, match="more than one column 'alcohol'"):
        clone(density).fit(twice)
    assert len(pickle.dumps(same.frame_)) < 2000  # none of the table's rows


def test_lazy_frames_are_to_be_collected(wine: pd.DataFrame, density: AEMDensity) -> None:
    lazy = polars.from_pandas(wine).lazy()
    for ask in (density.score_samples, density.explain, clone(density).fit):
        with pytest.raises(ValueError, match="lazy frame, which holds no rows yet: collect it"):
            ask(lazy)


@pytest.mark.parametrize(
    "labels",
    [[0, 1, 2, 3], [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")], [0, "one", 2.5, None]],
)
def test_labels_are_kept_as_they_were(labels: list[Any], wine: pd.DataFrame) -> None:
    frame = pd.DataFrame(wine.to_numpy())
    frame.columns = pd.Index(labels)
    fitted = AEMDensity(components=1).fit(frame)
    assert fitted.sample(2).columns.equals(frame.columns)
    assert set(fitted.explain(frame.iloc[:1], top=4)["column"]) == set(labels)
    reordered = frame[frame.columns[::-1]]
    np.testing.assert_array_equal(fitted.score_samples(reordered), fitted.score_samples(frame))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[13.0, 100.0, 2.0]], "the data has 3 columns, the model has 4"),
        ([13.0, 100.0, 2.0, 3.0], "must be a table of rows and columns"),
        ([[13.0, np.nan, 2.0, 3.0]], "column 'magnesium' of the data has NaN in row 0"),
        ([["strong", 100.0, 2.0, 3.0]], "must be numbers"),
    ],
)
def test_a_table_scores_nothing_but_its_own_rows(rows: Any, said: str, density: AEMDensity) -> None:
    with pytest.raises(AemError, match=said):
        density.model_.score(rows)


def test_a_table_scores_lists_as_exactly_as_arrays(wine: pd.DataFrame, density: AEMDensity) -> None:
    listed = density.model_.score(wine.to_numpy().tolist()).log_density
    assert listed.dtype == np.float64
    np.testing.assert_array_equal(listed.sum(1), density.score_samples(wine))
    # A view that runs backwards, as PyTorch takes none.
    turned = density.model_.score(wine.to_numpy()[::-1]).log_density
    np.testing.assert_array_equal(turned[::-1], listed)


def test_a_table_scores_to_the_tolerance_asked_for() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=1100)
    x = np.stack((a, np.round(np.sin(3 * a), 1)), axis=1)
    table = AEMDensity(steps=60, components=4, hidden=16).fit(x).model_
    assert not table.exact.flat
    roughly, exactly = table.score(x[:50]), table.score(x[:50], tolerance=1e-8)
    assert roughly.error.max() > 1e-8 >= exactly.error.max()
    np.testing.assert_allclose(roughly.total, exactly.total, atol=0.01)
    with pytest.warns(AccuracyWarning, match=r"2 of 2 rows \(0, 1\)"):
        hardly = table.score(x[:2], tolerance=1e-17)
    assert hardly.error.max() > 1e-17


def test_explanations_blame_the_column_that_was_changed(
    wine: pd.DataFrame, density: AEMDensity
) -> None:
    rows = wine.iloc[[10, 20]].assign(flavanoids=[9.0, 2.0], magnesium=[100.0, 160.0])
    lines = density.explain(rows, top=1)
    assert list(lines["row"]) == [10, 20]
    assert list(lines["column"]) == ["flavanoids", "magnesium"]
    assert (lines["surprise"] > 2).all()
    np.testing.assert_allclose(lines["log_density"], density.score_samples(rows))
    assert (lines["likely_low"] < lines["median"]).all()
    assert (lines["median"] < lines["likely_high"]).all()
    assert (lines["value"] > lines["likely_high"]).all()
    assert lines["median"][1] == round(lines["median"][1])  # a whole number like its column
    every = density.explain(rows, top=4)
    np.testing.assert_allclose(
        every.groupby("row")["column_log_density"].sum(), lines["log_density"], rtol=1e-12
    )


def test_columns_after_an_odd_one_are_still_explained(
    wine: pd.DataFrame, density: AEMDensity
) -> None:
    usual = density.explain(wine.iloc[[10]], top=4).set_index("column")
    odd = density.explain(wine.iloc[[10]].assign(alcohol=30.0), top=4).set_index("column")
    assert odd["rank"]["alcohol"] == 1
    width = (odd["likely_high"] - odd["likely_low"]) / (usual["likely_high"] - usual["likely_low"])
    assert (width < 3).all()


def test_two_slips_are_found_out_both() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=(400, 1))
    x = common + rng.normal(size=(400, 8))
    row = x[:1].copy()
    row[0, [1, 4]] = 40.0, -40.0
    lines = AEMDensity(components=2).fit(x).explain(row, top=3)
    assert set(lines["column"][:2]) == {"x2", "x5"}
    assert min(lines["surprise"][:2]) > 6
    assert lines["surprise"][2] < 5


def test_columns_that_agree_with_an_odd_one_are_not_to_blame() -> None:
    rng = np.random.default_rng(0)
    size = rng.normal(size=300)
    x = np.stack([size + 0.05 * rng.normal(size=300) for _ in range(4)], axis=1)
    lines = AEMDensity(components=1).fit(x).explain(np.full((1, 4), 6.0), top=4)
    assert lines["column"][0] == "x1"
    assert lines["surprise"][0] > 10
    assert max(lines["surprise"][1:]) < 3


def test_likely_regions_hold_what_they_say(wine: pd.DataFrame, density: AEMDensity) -> None:
    drawn = density.sample(400, random_state=1)
    lines = density.explain(drawn, top=4)
    inside = (lines["value"] >= lines["likely_low"]) & (lines["value"] <= lines["likely_high"])
    assert 0.86 < inside.mean() < 0.97  # intervals in pieces are counted as one here
    above = lines["value"] > lines["median"]
    assert 0.44 < above.mean() < 0.56


def test_reloaded_and_pickled_models_agree_to_the_last_digit(
    tmp_path: Any, wine: pd.DataFrame, density: AEMDensity
) -> None:
    density.save(tmp_path / "wine.aem")
    expected = density.score_samples(wine)
    table = TableModel.load(tmp_path / "wine.aem")
    np.testing.assert_array_equal(table.score(wine.to_numpy()).total, expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(density)).score_samples(wine), expected)
    np.testing.assert_array_equal(density.sample(9, random_state=0), table.sample(9, 0))
