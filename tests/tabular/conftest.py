"""A small table that lies on the disk as the real one does."""

from pathlib import Path

import numpy as np
import pytest

TINY = (
    "task.train_rows=400",
    "task.validation_rows=60",
    "task.test_rows=30",
    "model.hidden=16",
    "model.energy_hidden=8",
    "model.gamma=8",
    "model.components=2",
    "model.frequencies=2",
    "model.blocks=1",
    "model.energy_blocks=1",
    "train.batch_size=32",
    "train.steps=20",
    "train.validate_every=10",
    "train.device=cpu",
    "evaluate.quadrature_rows=20",
    "evaluate.refinement_rows=4",
    "evaluate.importance_rows=10",
    "evaluate.importance_samples=200",
    "evaluate.kde_rows=10",
    "evaluate.kde_samples=100",
    "evaluate.kde_fit_rows=10",
    "evaluate.validation_rows=8",
    "evaluate.seconds=0",
)


@pytest.fixture
def gas_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """gas-10k made of noise, under a data root of its own."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(8, 8))
    root = tmp_path / "data"
    (root / "gas").mkdir(parents=True)
    arrays = {
        name: (rng.normal(size=(10_000, 8)) @ mixing).astype(np.float32)
        for name in ("train", "valid", "test")
    }
    np.savez(root / "gas" / "gas_subset.npz", mu=np.zeros(8), sd=np.ones(8), **arrays)
    monkeypatch.setenv("AEM_DATA", str(root))
    return root
