"""Columns less their means, in deviations."""

import torch

from aem.model.transforms.affine import Affine
from tests.support.transforms import double, rows


def test_columns_are_moved_and_scaled() -> None:
    units = Affine(double(10.0, -1.0), double(2.0, 0.5))
    x = double(14.0, -1.5)
    assert units.forward(x).tolist() == [2.0, -1.0]
    assert units.inverse(double(2.0, -1.0)).tolist() == x.tolist()
    assert units.deviations.tolist() == [2.0, 0.5]
    assert torch.equal(units.centre(rows()[:, :2]), double(10.0, -1.0).expand(40, 2))


def test_the_identity() -> None:
    assert torch.equal(Affine.identity(3).double().forward(rows()), rows())
    assert not Affine.identity(3).log_slope.any()


def test_digits_are_kept_until_the_last_rounding() -> None:
    """In single precision times in seconds would all be the same."""
    units = Affine(torch.tensor([1.6e9]), torch.tensor([1.0]))
    shift = float(units.shift)
    x = torch.tensor([[shift + 0.25], [shift + 0.5]], dtype=torch.float64)
    z = units.forward(x)
    assert z.dtype == torch.float32
    assert z[:, 0].tolist() == [0.25, 0.5]


def test_it_moves_with_a_model() -> None:
    units = Affine(torch.tensor([1.0]), torch.tensor([2.0]))
    assert set(units.state_dict()) == {"shift", "scale"}
    assert units.double().shift.dtype == torch.float64
    assert units.double().forward(torch.ones(1, 1)).dtype == torch.float64
