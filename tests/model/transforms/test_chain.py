"""Transforms one after the other."""

import pytest
import torch

from aem.errors import AemError
from aem.model.transforms.base import Chain
from aem.model.transforms.offset import Offset
from aem.model.transforms.permutation import Permutation
from tests.support.transforms import Asinh, double, normal_scores, rows


def test_none_at_all_is_the_identity() -> None:
    assert torch.equal(Chain().forward(rows()), rows())
    assert torch.equal(Chain().inverse(rows()), rows())
    assert not Chain().log_slopes(rows()).any()


def test_the_first_is_the_nearest_to_the_table() -> None:
    chain = Chain((Offset((1.0, 0.0)),)).then(Permutation((1, 0)), Offset((10.0, 0.0)))
    assert chain.forward(double(5.0, 7.0)).tolist() == [-3.0, 4.0]
    assert chain.inverse(double(-3.0, 4.0)).tolist() == [5.0, 7.0]


def test_terms_are_carried_through_a_change_of_order() -> None:
    """The d-th is the log slope of the d-th column of y in the column of the table that it is."""
    order = (2, 0, 1)
    chain = Chain((normal_scores(1), Permutation(order), Asinh(0)))
    x = rows()
    slopes = chain.log_slopes(x)
    for row, terms in zip(x, slopes, strict=True):
        jacobian = torch.autograd.functional.jacobian(chain.forward, row)
        own = torch.stack([jacobian[d, source] for d, source in enumerate(order)])
        torch.testing.assert_close(terms, own.abs().log())
        assert int(jacobian.count_nonzero()) == len(order)
    assert bool((slopes[:, 2] != 0).all()), "the normal scores' column is the last one now"
    assert bool((slopes[:, 0] != 0).all())
    assert not slopes[:, 1].any()


def test_every_part_is_checked() -> None:
    with pytest.raises(AemError, match="2 offsets for 3 columns"):
        Chain((Permutation((2, 0, 1)), Offset((0.0, 1.0)))).check(3)
