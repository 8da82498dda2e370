"""Columns are matched by name wherever a model meets a data frame, of whatever library."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from aem import AEM, AEMDensity, TableModel, fit
from aem.errors import AemError
from aem.evaluation.side_by_side import evaluate
from aem.tables.ensemble import TableEnsemble
from aem.tables.queries.explain import explain
from aem.tables.scores import TableScores
from tests.support.short_runs import SHORT, TINY, TRAIN, VALIDATION
from tests.support.tables import NAMES, ensemble, rows_for, table_of, unnamed

Frame = Callable[[np.ndarray, list[str]], Any]


def pandas_frame(rows: np.ndarray, names: list[str]) -> Any:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return pandas.DataFrame(rows, columns=names)


def polars_frame(rows: np.ndarray, names: list[str]) -> Any:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    return polars.DataFrame(rows, schema=names, orient="row")


def arrow_table(rows: np.ndarray, names: list[str]) -> Any:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return arrow.table([np.ascontiguousarray(column) for column in rows.T], names=names)


LIBRARIES: dict[str, Frame] = {
    "pandas": pandas_frame,
    "polars": polars_frame,
    "arrow": arrow_table,
}


@pytest.fixture(params=LIBRARIES)
def frame(request: pytest.FixtureRequest) -> Frame:
    return LIBRARIES[request.param]


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    """Frames may own their memory; that is nothing to warn a user of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.fixture(scope="module", params=["model", "ensemble"])
def table(request: pytest.FixtureRequest) -> TableModel | TableEnsemble:
    return table_of(NAMES) if request.param == "model" else ensemble()


def reversed_(frame: Frame, rows: np.ndarray, names: list[str]) -> Any:
    """The same table with its columns the other way round."""
    return frame(rows[:, ::-1], names[::-1])


def test_the_order_of_a_frame_s_columns_changes_nothing(
    table: TableModel | TableEnsemble, frame: Frame
) -> None:
    rows, names = rows_for(table), list(NAMES)
    expected = table.score(rows)
    for given in (frame(rows, names), reversed_(frame, rows, names)):
        found = table.score(given)
        np.testing.assert_array_equal(found.total, expected.total)
        np.testing.assert_array_equal(found.error, expected.error)
    assert not np.allclose(table.score(rows[::-1]).total, expected.total)


def test_columns_too_few_or_too_many_are_named(
    table: TableModel | TableEnsemble, frame: Frame
) -> None:
    rows, names = rows_for(table), list(NAMES)
    with pytest.raises(AemError) as refused:
        table.score(frame(rows[:, 1:], names[1:]))
    assert str(refused.value) == (
        "the data has no column 'time', which the model was fitted on; "
        "it has 'size', 'tail', 'count', 'level'"
    )
    with pytest.raises(AemError) as refused:
        table.score(frame(np.hstack((rows, rows[:, :1])), [*names, "noise"]))
    assert str(refused.value) == (
        "the data has a column 'noise' the model was not fitted on; "
        "it knows 'time', 'size', 'tail', 'count', 'level'"
    )
    with pytest.raises(AemError, match="the data has 4 columns, the model has 5"):
        table.score(rows[:, 1:])


def test_explanations_are_of_the_columns_by_their_names(frame: Frame) -> None:
    table = table_of(NAMES)
    rows = rows_for(table, 10)
    expected = explain(table, rows)
    found = explain(table, reversed_(frame, rows, list(NAMES)))
    np.testing.assert_array_equal(found.surprise, expected.surprise)
    np.testing.assert_array_equal(found.median, expected.median)


def test_all_scores_take_frames(table: TableModel | TableEnsemble, frame: Frame) -> None:
    rows, scores = rows_for(table), TableScores.of(table)
    expected = evaluate(scores, rows, samples=10, kde_samples=0)
    found = evaluate(scores, reversed_(frame, rows, list(NAMES)), samples=10, kde_samples=0)
    for name in ("quadrature", "importance", "proposal"):
        assert getattr(found, name) == getattr(expected, name)
    with pytest.raises(AemError, match="the data has no column 'time'"):
        evaluate(scores, frame(rows[:, 1:], list(NAMES[1:])), samples=0, kde_samples=0)


def test_rows_that_fit_kernels_may_be_a_frame(frame: Frame) -> None:
    table = table_of(("size", "tail"), moved=False)
    rows, names = rows_for(table), ["size", "tail"]
    few: dict[str, Any] = {"samples": 0, "kde_samples": 20}
    expected = evaluate(TableScores.of(table), rows, validation=rows[:15], **few)
    held_out = reversed_(frame, rows[:15], names)
    found = evaluate(TableScores.of(table), frame(rows, names), validation=held_out, **few)
    assert found.kde == expected.kde
    with pytest.raises(AemError, match="the data has a column 'other'"):
        other = frame(np.hstack((rows, rows[:, :1])), [*names, "other"])
        evaluate(TableScores.of(table), rows, validation=other, **few)


def test_a_model_takes_its_names_from_a_frame(frame: Frame) -> None:
    torch.manual_seed(5)
    expected = AEM.for_data(TINY, TRAIN, columns=("east", "north"))
    torch.manual_seed(5)
    model = AEM.for_data(TINY, frame(TRAIN, ["east", "north"]))
    assert model.columns == expected.columns == ("east", "north")
    for name, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    # Names in another order are an order for the model.
    torch.manual_seed(5)
    turned = AEM.for_data(TINY, frame(TRAIN, ["east", "north"]), columns=("north", "east"))
    assert turned.columns == ("north", "east")
    assert torch.equal(turned.standardisation.shift, expected.standardisation.shift.flip(0))
    assert AEM.for_data(TINY, TRAIN).columns == ("x1", "x2")


def test_training_on_a_frame_gives_the_same_bits(frame: Frame) -> None:
    config, names = replace(SHORT, steps=8), ["east", "north"]
    states = []
    for train, validation in (
        (TRAIN, VALIDATION),
        (frame(TRAIN, names), frame(VALIDATION, names)),
        (reversed_(frame, TRAIN, names), reversed_(frame, VALIDATION, names)),
    ):
        torch.manual_seed(5)
        model = AEM.for_data(TINY, TRAIN, columns=names)
        progress = fit(model, train, validation, config, quiet=True)
        states.append((model.state_dict(), progress.best_score))
    for state, score in states[1:]:
        assert score == states[0][1]
        for name, tensor in states[0][0].items():
            assert torch.equal(state[name], tensor), name
    with pytest.raises(AemError, match="the data has no column 'north'"):
        fit(model, frame(TRAIN, ["east", "south"]), VALIDATION, config, quiet=True)


def test_columns_without_names_are_taken_as_they_come(frame: Frame) -> None:
    table = unnamed()
    rows = rows_for(table)
    expected = table.score(rows).total
    np.testing.assert_array_equal(table.score(frame(rows, ["b", "a"])).total, expected)
    with pytest.raises(AemError, match="the data has 1 columns, the model has 2"):
        table.score(frame(rows[:, :1], ["x1"]))


def test_x1_and_x2_are_names_where_a_frame_has_them(frame: Frame) -> None:
    table = unnamed()
    rows = rows_for(table)
    expected = table.score(rows).total
    np.testing.assert_array_equal(table.score(frame(rows, ["x1", "x2"])).total, expected)
    np.testing.assert_array_equal(table.score(reversed_(frame, rows, ["x1", "x2"])).total, expected)


def test_estimators_that_return_from_a_file_match_names_too(frame: Frame, tmp_path: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2)) * [1, 9]
    for names in (["a", "b"], ["x1", "x2"]):
        density = AEMDensity(components=1).fit(frame(rows, names))
        expected = density.score_samples(frame(rows, names))
        density.save(tmp_path / "m.aem")
        for again in (density, AEMDensity.load(tmp_path / "m.aem")):
            found = again.score_samples(reversed_(frame, rows, names))
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(again.score_samples(rows), expected)


def test_a_lazy_frame_holds_no_rows_yet() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    with pytest.raises(AemError, match="lazy frame"):
        unnamed().score(polars.DataFrame({"x1": [0.0], "x2": [0.0]}).lazy())
