"""A Gaussian has nothing to tune: on the right data it scores what MAF's table 1 says it does."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

from aem.data import registry
from aem.data.splits import Table


def gaussian_scores(train: Table, test: Table) -> np.ndarray:
    """Log densities of test rows under the Gaussian with the training rows' moments."""
    rows = train.astype(np.float64)
    factor = cho_factor(np.cov(rows.T), lower=True)
    off = test.astype(np.float64) - rows.mean(0)
    log_determinant = 2 * np.log(np.diag(factor[0])).sum()
    squares = (off * cho_solve(factor, off.T).T).sum(1)
    scores: np.ndarray = -(squares + log_determinant + off.shape[1] * np.log(2 * np.pi)) / 2
    return scores


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "published", "published_two_se"),
    [("power-maf", -7.74, 0.02), ("bsds300", 96.67, 0.25)],
)
def test_a_gaussian_scores_as_published(
    name: str, published: float, published_two_se: float, real_data: Callable[[str], Path]
) -> None:
    splits = registry.load(name, real_data(name))
    scores = gaussian_scores(splits.train, splits.test)
    two_se = 2 * scores.std() / len(scores) ** 0.5
    assert abs(scores.mean() - published) < np.hypot(two_se, published_two_se)
