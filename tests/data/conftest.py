"""Where the real data is, for the tests that need it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aem.data import registry


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """Return the root of the real data, or skip a test whose data set is not under it."""

    def root_of(name: str) -> Path:
        root = os.environ.get("AEM_DATA")
        if not root:
            pytest.skip("AEM_DATA is not set")
        if not registry.status(name, root).present:
            pytest.skip(f"{name} is not under AEM_DATA")
        return Path(root)

    return root_of
