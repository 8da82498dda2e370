"""Numbers subtracted from columns far from zero."""

import pytest
import torch

from aem.errors import AemError
from aem.model.transforms.offset import Offset
from tests.support.transforms import double, rows


def test_digits_that_differ_are_left() -> None:
    times = torch.tensor([[1.6e9 + 0.25, 7.0], [1.6e9 + 0.5, 8.0]], dtype=torch.float64)
    offset = Offset((1.6e9, 0.0))
    assert offset.forward(times).tolist() == [[0.25, 7.0], [0.5, 8.0]]
    assert torch.equal(offset.inverse(offset.forward(times)), times)


def test_volumes_stay() -> None:
    assert not Offset((1.0, 2.0, 3.0)).log_slopes(rows()).any()


@pytest.mark.parametrize("offset", [float("nan"), float("inf")])
def test_offsets_are_finite(offset: float) -> None:
    with pytest.raises(AemError, match="offset of a column has numbers that are not finite"):
        Offset((0.0, offset))


def test_the_type_of_the_rows_is_kept() -> None:
    assert Offset((1.0, 2.0)).forward(double(1.0, 2.0).float()).dtype == torch.float32
