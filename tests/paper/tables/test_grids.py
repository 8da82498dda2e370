"""Whole numbers spread over their cells."""

from dataclasses import replace

import numpy as np
import pytest

from aem.data.splits import TableSplits
from aem.errors import AemError
from aem.paper.tables.grids import spread_over_cells


def test_values_stay_in_their_cells_and_test_rows_where_they_are() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack((rng.normal(size=4000), 0.25 * rng.integers(0, 9, size=4000)))
    table = rows.astype(np.float32)
    splits = TableSplits("minutes", table, table[:500], table[:100], ("free", "whole"))
    moved = spread_over_cells(replace(splits, steps=(0.0, 0.25)), seed=1)
    np.testing.assert_array_equal(moved.test, splits.test)
    for before, after in ((splits.train, moved.train), (splits.validation, moved.validation)):
        np.testing.assert_array_equal(after[:, 0], before[:, 0])
        np.testing.assert_array_equal(np.round(after[:, 1] / 0.25), before[:, 1] / 0.25)
    place = (moved.train[:, 1] - splits.train[:, 1]) / 0.25
    assert abs(place.mean()) < 0.02
    assert place.std() == pytest.approx(12**-0.5, rel=0.03)
    assert not np.array_equal(spread_over_cells(moved, seed=2).train, moved.train)
    with pytest.raises(AemError, match="minutes has no column known to lie on a grid"):
        spread_over_cells(splits, seed=1)
