"""The rivals of the small tables are densities, and know a Gaussian when they see one."""

import numpy as np
import pytest

from aem.data.splits import TableSplits
from benchmarks.accuracy import rivals


@pytest.fixture
def splits() -> TableSplits:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 2)) @ np.array([[2.0, 0.0], [1.0, 0.5]])
    return TableSplits.of("normal", (rows[:600], rows[600:750], rows[750:]), ("a", "b"))


def entropy() -> float:
    """Of the normal distribution above: log det = log 1."""
    return float(np.log(2 * np.pi * np.e))


@pytest.mark.parametrize("name", ["gaussian_mixture", "kernel_density"])
def test_close_to_the_truth(
    name: str, splits: TableSplits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rivals, "COMPONENTS", (1, 2))
    log_prob, chosen = getattr(rivals, name)(splits)
    assert -entropy() - 0.3 < float(log_prob(splits.test).mean()) < -entropy() + 0.3
    assert chosen
    # A density: its integral over a wide grid is one.
    axis = np.linspace(-12, 12, 121, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    assert np.exp(log_prob(grid)).sum() * 0.2**2 == pytest.approx(1.0, abs=0.02)


def test_flow_stops_early_and_keeps_the_best(splits: TableSplits) -> None:
    pytest.importorskip("zuko")
    log_prob, chosen = rivals.spline_flow(splits, epochs=2, report=lambda _: None)
    assert chosen["best_epoch"] <= chosen["stopped_after"] == 2
    assert np.isfinite(log_prob(splits.test)).all()
