import re

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike

from aem.base.checks import check_table
from aem.errors import AemError


def good(rows: int = 20) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.random.default_rng(0).normal(size=(rows, 3))


def with_value(value: float, *places: tuple[int, int]) -> ArrayLike:
    table = good()
    for place in places:
        table[place] = value
    return table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (with_value(np.nan, (3, 1)), "column 'b' of the data has NaN in row 3 (1 of 20 rows"),
        (with_value(np.nan, (9, 2), (4, 2), (11, 2)), "column 'c' of the data has NaN in row 4 (3"),
        (with_value(np.inf, (0, 0)), "column 'a' of the data has an infinite value in row 0"),
        (with_value(-np.inf, (19, 0)), "column 'a' of the data has an infinite value in row 19"),
        (good() * [1, 0, 1] + 5, "column 'b' of the data is constant"),
        (good() * [0, 1, 0] + 5, "column 'a', 'c' of the data is constant"),
        (good() * [1, 1, 1e300], "column 'c' of the data has values too extreme"),
        (good() * [1, 1, 5e307], "column 'c' of the data has values too extreme"),
        (good() * [1, 1e-60, 1], "column 'b' of the data has values too extreme"),
        (good() * [1e60, 1, 1], "column 'a' of the data has values too extreme"),
        (good(9), "the data has 9 rows, fitting needs at least 10"),
        (good(0), "the data has 0 rows"),
        (good()[:, :2], "3 column names for 2 columns of the data"),
        (good()[:, 0], "table of rows and columns, not of shape (20,)"),
        (good()[None], "not of shape (1, 20, 3)"),
        ([["1", "2", "three"]], "must be numbers"),
        ([[1.0, 2.0, 3.0], [1.0]], "must be numbers"),
    ],
)
def test_culprits_are_named(table: ArrayLike, message: str) -> None:
    with pytest.raises(AemError, match=re.escape(message)):
        check_table(table, columns=("a", "b", "c"), for_fitting=True)


def test_width_of_the_model_counts() -> None:
    with pytest.raises(AemError, match="the context has 3 columns, the model has 4"):
        check_table(good(), features=4, what="context")


def test_columns_without_names_are_counted_from_one() -> None:
    with pytest.raises(AemError, match="column 'x3'"):
        check_table(with_value(np.nan, (0, 2)))


def test_scoring_asks_for_finite_numbers_only() -> None:
    table = np.ones((1, 3), dtype=np.float32)
    checked = check_table(table, columns=("a", "b", "c"))
    assert checked.dtype == np.float64
    assert np.array_equal(checked, table)


def test_ordinary_extremes_are_accepted() -> None:
    for factor in (1e-20, 1e20):
        assert check_table(good() * factor + factor, for_fitting=True).shape == (20, 3)


def test_pytorch_takes_what_was_checked() -> None:
    locked = good()
    locked.flags.writeable = False
    for table in (locked, good()[::-1], np.asfortranarray(good()), np.ma.array(good())):
        checked = check_table(table)
        assert checked.flags.writeable and checked.flags.c_contiguous
        assert type(checked) is np.ndarray
        assert np.array_equal(checked, np.asarray(table))
        torch.from_numpy(checked)
    unlocked = good()
    assert check_table(unlocked) is unlocked, "no copy where none is needed"
