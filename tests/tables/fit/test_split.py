"""Copies of a row stay on one side of a split, and a table without copies is split as by rows."""

import numpy as np
import pytest

from aem.tables.fit.automatic import fit_table
from aem.tables.fit.settings import FitSettings
from aem.tables.fit.split import FOLDS, HELD_OUT, by_chance, copies, folds, hold_out


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3))


def test_equal_rows_have_the_same_number_and_others_not() -> None:
    x = rows(50)
    np.testing.assert_array_equal(copies(x), np.arange(50))
    np.testing.assert_array_equal(
        copies(np.concatenate((x, x[::-1]))), [*range(50), *range(49, -1, -1)]
    )
    zeros = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, -1.0]])
    np.testing.assert_array_equal(copies(zeros), [0, 0, 1])


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_group_is_held_out_as_a_whole(times: int) -> None:
    groups = copies(np.repeat(rows(400), times, axis=0))
    held_out = hold_out(groups, np.random.default_rng(1))
    assert held_out.sum() == 400 * times // HELD_OUT
    assert not set(groups[held_out]) & set(groups[~held_out])


def test_a_row_with_very_many_copies_does_not_judge() -> None:
    groups = np.concatenate((np.zeros(900, dtype=int), np.arange(1, 101)))
    for seed in range(20):
        held_out = hold_out(groups, np.random.default_rng(seed))
        assert not held_out[0] and 0 < held_out.sum() <= 100


def test_something_is_left_to_train_on() -> None:
    assert hold_out(np.array([0, 1]), np.random.default_rng(0)).sum() == 1
    assert hold_out(np.zeros(9, dtype=int), np.random.default_rng(0)).sum() == 0


def test_every_row_judges_in_one_fold() -> None:
    groups = copies(np.repeat(rows(60), 3, axis=0))
    judging = np.stack(list(folds(groups, seed=2)))
    assert judging.shape == (FOLDS, 180)
    np.testing.assert_array_equal(judging.sum(0), 1)
    for fold in judging:
        assert not set(groups[fold]) & set(groups[~fold])


@pytest.mark.parametrize("seed", range(3))
def test_a_doubled_table_is_fitted_like_the_table(seed: int) -> None:
    """Judged by copies of its own rows, a mixture would have as many components as it may."""
    x, new = rows(150, seed), rows(2000, seed + 10)
    settings = FitSettings(steps=0)
    alone, doubled = (
        fit_table(some, ["a", "b", "c"], settings=settings).table
        for some in (x, np.concatenate((x, x)))
    )
    assert doubled.about["copies"] == 150
    assert doubled.about["mixture"]["components"] <= 2
    assert doubled.score(new).total.mean() == pytest.approx(alone.score(new).total.mean(), abs=0.1)


def test_values_that_repeat_in_copies_alone_are_not_discrete() -> None:
    x = rows(80).round(2)
    once, thrice = (
        fit_table(some, ["a", "b", "c"], settings=FitSettings(components=1, steps=0)).table
        for some in (x, np.repeat(x, 3, axis=0))
    )
    assert once.discrete == thrice.discrete == ()


def test_rows_of_discrete_columns_alone_are_no_copies() -> None:
    x = np.random.default_rng(0).integers(0, 3, size=(300, 2)).astype(float)
    assert fit_table(x, ["a", "b"], settings=FitSettings(steps=0)).table.about["copies"] == 0


@pytest.mark.parametrize("times", [2, 11, 40])
def test_copies_are_not_by_chance_however_many_there_are(times: int) -> None:
    for x in (rows(200), rows(750).round(1)):
        many = np.repeat(x, times, axis=0)
        assert not by_chance(many, copies(many))


def test_rows_of_few_values_agree_by_chance() -> None:
    for x in (rows(500) > 0, rows(2000).round(), np.repeat(rows(5), 300, axis=0)):
        values = np.asarray(x, dtype=np.float64)
        assert by_chance(values, copies(values))
    assert by_chance(rows(100), copies(rows(100))), "there is nothing to explain"


def test_a_table_with_many_copies_of_each_row_is_fitted_like_the_rows() -> None:
    x, unseen = rows(200), rows(500, 1)
    columns, settings = ["a", "b", "c"], FitSettings(steps=0)
    once = fit_table(x, columns, settings=settings).table
    often = fit_table(np.repeat(x, 11, axis=0), columns, settings=settings).table
    assert often.about["copies"] == 2000
    gap = once.score(unseen).total.mean() - often.score(unseen).total.mean()
    assert gap == pytest.approx(0.0, abs=0.1)
