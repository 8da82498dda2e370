"""A saved detector is a detector: its threshold, its looks, its predictions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aem import AEMDensity, AemError, AEMOutlierDetector, TableModel
from aem.base.files import read_tensors, write_tensors
from tests.support.tables import NAMES, sizes

KEPT = Path(__file__).parents[2] / "kept" / "0.1" / "detector.aem"
COLUMNS = ["size", "tail", "count"]


def frame(rows: int, seed: int) -> pd.DataFrame:
    return pd.DataFrame(sizes(rows, seed), columns=list(NAMES))[COLUMNS]


@pytest.fixture(scope="module")
def detector() -> AEMOutlierDetector:
    return AEMOutlierDetector(contamination=0.07, components=2).fit(frame(150, 0))


@pytest.fixture
def path(detector: AEMOutlierDetector, tmp_path: Path) -> Path:
    detector.save(tmp_path / "odd.aem")
    return tmp_path / "odd.aem"


def test_it_returns_from_its_file_to_the_last_bit(detector: AEMOutlierDetector, path: Path) -> None:
    again, rows = AEMOutlierDetector.load(path), frame(80, 5)
    assert (again.offset_, again.contamination) == (detector.offset_, 0.07)
    assert again.discrete_ == detector.discrete_ == ["count"]
    for ask in ("score_samples", "decision_function", "predict"):
        np.testing.assert_array_equal(getattr(again, ask)(rows), getattr(detector, ask)(rows))
    assert {-1, 1} == set(again.predict(rows))
    again.save(path)
    twice = AEMOutlierDetector.load(path)
    np.testing.assert_array_equal(twice.predict(rows), detector.predict(rows))


def test_columns_are_still_matched_by_name(detector: AEMOutlierDetector, path: Path) -> None:
    again, rows = AEMOutlierDetector.load(path), frame(20, 5)
    np.testing.assert_array_equal(again.feature_names_in_, COLUMNS)
    np.testing.assert_array_equal(again.predict(rows[COLUMNS[::-1]]), detector.predict(rows))
    with pytest.raises(ValueError, match="no column 'tail'"):
        again.predict(rows.drop(columns="tail"))


def test_its_density_is_read_by_itself(detector: AEMOutlierDetector, path: Path) -> None:
    rows = frame(20, 5)
    expected = detector.model_.score(rows)
    for table in (TableModel.load(path), AEMDensity.load(path).model_):
        np.testing.assert_array_equal(table.score(rows).log_density, expected.log_density)
    np.testing.assert_array_equal(AEMDensity.load(path).score_samples(rows), expected.total)


def test_one_that_0_1_saved_has_a_density_alone() -> None:
    with pytest.raises(AemError) as refused:
        AEMOutlierDetector.load(KEPT)
    assert str(refused.value) == (
        f"{KEPT} holds a density without a threshold: load it with aem.TableModel.load, or fit the "
        "detector again if aem 0.1 saved it"
    )
    assert isinstance(refused.value, ValueError), "as scikit-learn's conventions ask"
    x = sizes(9, 2)
    expected = TableModel.load(KEPT).score(x).total
    np.testing.assert_array_equal(AEMDensity.load(KEPT).score_samples(x), expected)
    assert np.isfinite(expected).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("threshold"),
        lambda d: d.pop("middle"),
        lambda d: d.pop("contamination"),
        lambda d: d.update(threshold=float("nan")),
        lambda d: d.update(threshold="low"),
        lambda d: d.update(middle=[1.0, 2.0]),
        lambda d: d.update(middle=[1.0, 2.0, float("inf")]),
        lambda d: d.update(spread=[1.0, 1.0, 0.0]),
        lambda d: d.update(spread=[1.0, 1.0, float("nan")]),
        lambda d: d.update(spread=None),
        lambda d: d.update(contamination=0.0),
        lambda d: d.update(contamination=0.7),
        lambda d: d.update(contamination=[0.1]),
    ],
)
def test_damaged_detectors(change: Callable[[dict[str, Any]], object], path: Path) -> None:
    tensors, metadata = read_tensors(path, "detector")
    change(metadata["detector"])
    write_tensors(path, tensors, metadata)
    with pytest.raises(AemError, match=f"{path} does not hold a complete detector: [^\n]*$"):
        AEMOutlierDetector.load(path)
    TableModel.load(path)  # which needs none of that


def test_without_its_own_part(path: Path) -> None:
    tensors, metadata = read_tensors(path, "detector")
    del metadata["detector"]
    write_tensors(path, tensors, metadata)
    with pytest.raises(
        AemError, match=r"odd\.aem does not hold a complete detector: .detector. is missing"
    ):
        AEMOutlierDetector.load(path)


def test_only_what_was_fitted_is_saved(tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    for estimator in (AEMOutlierDetector(), AEMDensity()):
        with pytest.raises(NotFittedError):
            estimator.save(tmp_path / "m.aem")
    assert not list(tmp_path.iterdir())
