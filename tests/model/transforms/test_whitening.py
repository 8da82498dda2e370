"""What each column adds to those before it."""

import numpy as np
import pytest
import torch

from aem.errors import AemError
from aem.model.transforms.whitening import Whitening, regressions
from tests.support.transforms import entangled


@pytest.fixture
def whitening() -> Whitening:
    x = entangled(5000)
    slopes, scale = regressions(x)
    return Whitening(*map(torch.from_numpy, (x.mean(0), scale, slopes)))


def test_slopes_are_those_of_least_squares() -> None:
    x = entangled(1000)
    slopes, deviations = regressions(x)
    centred = x - x.mean(0)
    for d in range(1, 4):
        expected, *_ = np.linalg.lstsq(centred[:, :d], centred[:, d], rcond=None)
        np.testing.assert_allclose(slopes[d, :d], expected, rtol=1e-3)
        left = centred[:, d] - centred[:, :d] @ expected
        np.testing.assert_allclose(deviations[d], left.std(), rtol=1e-3)
    assert not np.triu(slopes).any()


def test_few_rows_are_refused() -> None:
    with pytest.raises(AemError, match="40 for 4 columns, not 39"):
        regressions(entangled(39))


def test_columns_become_uncorrelated_and_of_unit_deviation(whitening: Whitening) -> None:
    z = whitening.forward(torch.from_numpy(entangled(5000)))
    torch.testing.assert_close(torch.cov(z.T), torch.eye(4).double(), rtol=0, atol=5e-3)


def test_deviations_are_those_of_the_columns(whitening: Whitening) -> None:
    expected = torch.from_numpy(entangled(5000)).std(0, correction=0)
    torch.testing.assert_close(whitening.deviations, expected, rtol=1e-3, atol=0)
    z = whitening.forward(torch.from_numpy(entangled(5000)))
    spread = (z @ whitening.spans.T).std(0, correction=0)
    torch.testing.assert_close(spread, expected, rtol=1e-9, atol=0)


def test_the_centre_of_a_column_depends_on_those_before_alone(whitening: Whitening) -> None:
    x = torch.from_numpy(entangled(20))
    for d in range(4):
        other = x.clone()
        other[:, d:] += 5
        assert torch.equal(whitening.centre(x)[:, d], whitening.centre(other)[:, d])
        if d:
            other[:, 0] += 5
            moved = whitening.centre(other)[:, d]
            assert not torch.isclose(whitening.centre(x)[:, d], moved).any()


def test_the_identity() -> None:
    x = torch.from_numpy(entangled(20))
    identity = Whitening.identity(4).double()
    assert torch.equal(identity.forward(x), x)
    assert torch.equal(identity.inverse(x), x)
    assert set(identity.state_dict()) == {"shift", "scale", "slopes"}
