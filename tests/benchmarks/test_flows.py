"""zuko's flows come near a Gaussian, validation rows choose, and what is chosen is what is scored."""

import math

import numpy as np
import pytest

pytest.importorskip("zuko")

from benchmarks.accuracy import flows


def test_near_the_truth() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(900, 2)) @ np.array([[2.0, 0.0], [1.0, 0.5]])).astype(np.float32)
    settings = (
        flows.Setting("NSF", 1, (8,), batch=100),
        flows.Setting("MAF", 2, (16,), dropout=0.1, weight_decay=0.01, batch=100),
        flows.Setting("MAF", 2, (16,), learning_rate=1e-9, batch=100),
    )
    study = flows.Study(settings, seconds=math.inf, steps=1600)
    found = flows.compare(study, rows[:600], rows[600:750], rows[750:], device="cpu")
    assert [trial["family"] for trial in found["trials"]] == ["NSF", "MAF", "MAF"]
    chosen = found["chosen"]["MAF"]
    assert chosen["setting"]["learning_rate"] == 1e-3, "the one that learns"
    entropy = float(np.log(2 * np.pi * np.e))  # log det = log 1
    assert chosen["test_mean"] == pytest.approx(-entropy, abs=0.4)
    assert chosen["test_rows"] == 150
    best = max(t["validation_log_prob"] for t in found["trials"] if t["family"] == "MAF")
    assert chosen["validation_log_prob"] == best
