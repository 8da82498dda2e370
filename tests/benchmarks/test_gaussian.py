"""A Gaussian has nothing to tune: on the right data it scores what MAF published for it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aem.data import registry
from aem.evaluation.summary import two_standard_errors
from aem.paper.published import GAUSSIAN
from benchmarks.claims.gaussian import gaussian_scores


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "column"),
    [("power-maf", "POWER"), ("miniboone", "MINIBOONE"), ("bsds300", "BSDS300")],
)
def test_a_gaussian_scores_as_published(
    name: str, column: str, real_data: Callable[[str], Path]
) -> None:
    splits = registry.load(name, real_data(name))
    scores = gaussian_scores(splits.train, splits.test)
    published, published_two_se = GAUSSIAN.scores[column]
    assert published_two_se is not None
    off = abs(scores.mean() - published)
    assert off < np.hypot(two_standard_errors(scores), published_two_se)
