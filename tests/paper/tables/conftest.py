"""A small table that lies on the disk as the real one does."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def gas_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """gas-10k made of noise, under a data root of its own."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(8, 8))
    root = tmp_path / "data"
    (root / "gas").mkdir(parents=True)
    train, valid, test = ((rng.normal(size=(10_000, 8)) @ mixing).astype("f4") for _ in range(3))
    file = root / "gas" / "gas_subset.npz"
    np.savez(file, train=train, valid=valid, test=test, mu=np.zeros(8), sd=np.ones(8))
    monkeypatch.setenv("AEM_DATA", str(root))
    return root
