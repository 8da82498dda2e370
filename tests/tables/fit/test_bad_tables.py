"""Tables that are hard to fit: each is fitted and said to be so, or refused in a sentence."""

import warnings

import numpy as np
import pytest

from aem import AEMDensity
from aem.errors import AemError
from aem.tables.fit.automatic import fit_table
from aem.tables.fit.settings import FitSettings

COLUMNS = ["a", "b", "c"]
MIXTURE = FitSettings(steps=0)


def normal(rows: int, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, columns))


def test_ten_rows_get_a_gaussian_and_no_networks() -> None:
    table = fit_table(normal(10), COLUMNS).table
    assert table.about["network"] is None and table.about["mixture"]["components"] == 1
    assert np.isfinite(table.score(normal(10)).total).all()
    with pytest.raises(AemError, match="networks need at least 20 rows that differ, and the table"):
        fit_table(normal(10), COLUMNS, settings=FitSettings(steps=10))


def test_more_columns_than_rows() -> None:
    x = normal(60, 80)
    table = fit_table(x[:50], [f"x{i}" for i in range(80)]).table
    unseen = table.score(x[50:]).total.mean()
    assert unseen == pytest.approx(-80 * 1.42, abs=15), "near the entropy of independent columns"


def test_a_column_that_follows_from_others_is_named() -> None:
    x = normal(400)
    x[:, 2] = 2 * x[:, 0] - x[:, 1]
    table = fit_table(x, COLUMNS, settings=MIXTURE).table
    assert table.about["determined"] == ["c"]
    with pytest.warns(UserWarning, match="almost exact functions of the columns before them: x3;"):
        AEMDensity(steps=0).fit(x)


def test_other_columns_are_not_named() -> None:
    """Neither discrete columns nor heavy tails, whose deviation says nothing about most rows."""
    x = normal(400)
    x[:, 0], x[:, 1] = np.exp(3 * x[:, 0]), np.exp(3 * x[:, 1])
    x[:, 2] = (np.log(x[:, 0]) + 0.1 * x[:, 2]).round()  # discrete, and nearly certain
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AEMDensity(steps=0).fit(x)


@pytest.mark.parametrize("far", [1e30, -1e15])
def test_a_value_beyond_all_others_is_refused_with_its_row(far: float) -> None:
    x = normal(400)
    x[7, 1] = far
    with pytest.raises(AemError, match=r"column 'b' has .*e\+\d+ in row 7, so far from its other"):
        fit_table(x, COLUMNS)


def test_an_outlier_is_not_refused() -> None:
    x = normal(400)
    x[7, 1] = 1e3
    assert np.isfinite(fit_table(x, COLUMNS, settings=MIXTURE).table.score(x).total).all()


def test_constant_columns_are_fitted() -> None:
    x = normal(400)
    x[:, 1] = 5.0
    x[:, 2] = 5.0 + 1e-12 * x[:, 2]
    table = fit_table(x, COLUMNS, settings=MIXTURE).table
    assert {column.column for column in table.discrete} == {"b", "c"}
    assert np.isfinite(table.score(x).total).all()
