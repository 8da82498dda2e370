"""Linear maps of whole numbers that keep volumes."""

import numpy as np
import pytest
import torch

from aem.errors import AemError
from aem.model.transforms.symmetry import Symmetry
from tests.support.transforms import double, rows


def test_a_shear_is_undone_exactly() -> None:
    shear = Symmetry(((1, 0), (1, 1)))
    x = double(49.0, -49.75)
    assert shear.forward(x).tolist() == [49.0, -0.75]
    assert shear.inverse(shear.forward(x)).tolist() == x.tolist()
    assert not shear.log_slopes(rows()[:, :2]).any()


def test_quarter_turns_of_a_picture_come_back() -> None:
    """Every entry as it was: such a matrix has an inverse of whole numbers."""
    size = 5
    place = np.rot90(np.arange(size * size).reshape(size, size)).ravel()
    turn = Symmetry(tuple(map(tuple, np.eye(size * size, dtype=int)[place].tolist())))
    x = torch.rand(7, size * size, dtype=torch.float64)
    turned = turn.forward(x).reshape(7, size, size)
    assert torch.equal(turned, x.reshape(7, size, size).rot90(1, (1, 2)))
    assert torch.equal(turn.inverse(turn.forward(x)), x)


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        (((2, 0), (0, 1)), "keep volumes"),
        (((1, 1), (1, 1)), "keep volumes"),
        (((1, 0), (0,)), "square matrix"),
        (((1, 0, 0), (0, 1, 0)), "square matrix"),
    ],
)
def test_what_is_no_symmetry_is_refused(matrix: tuple[tuple[int, ...], ...], said: str) -> None:
    with pytest.raises(AemError, match=said):
        Symmetry(matrix)
