"""The columns of a table in another order."""

import pytest

from aem.errors import AemError
from aem.model.transforms.permutation import Permutation
from tests.support.transforms import double, rows


def test_each_column_of_the_model_is_one_of_the_table() -> None:
    order = Permutation((2, 0, 1))
    x = double(10.0, 11.0, 12.0)
    assert order.forward(x).tolist() == [12.0, 10.0, 11.0]
    assert order.inverse(order.forward(x)).tolist() == x.tolist()
    assert not order.log_slopes(rows()).any()


def test_terms_go_with_their_columns() -> None:
    terms = double(0.1, 0.2, 0.3)
    assert Permutation((2, 0, 1)).reorder(terms).tolist() == [0.3, 0.1, 0.2]


@pytest.mark.parametrize("order", [(0, 0, 1), (0, 2), (-1, 0), (1, 2)])
def test_every_column_is_named_once(order: tuple[int, ...]) -> None:
    with pytest.raises(AemError, match="does not name each column once"):
        Permutation(order)
