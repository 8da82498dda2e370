"""Each dependency has one lower bound, which pip can be held to."""

import pytest

from tools.lower_bounds import lower_bounds


def test_a_bound_is_a_constraint_and_torch_is_pinned_elsewhere() -> None:
    found = lower_bounds(["torch>=2.6", "numpy>=1.26", "scikit-learn>=1.6", "numpy>=1.26"])
    assert found == {"numpy": "1.26", "scikit-learn": "1.6"}


@pytest.mark.parametrize("requirement", ["numpy", "numpy~=1.26", "numpy>=1.26,<3", "numpy>=2.0"])
def test_a_dependency_without_one_bound_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="numpy"):
        lower_bounds(["numpy>=1.26", requirement])
