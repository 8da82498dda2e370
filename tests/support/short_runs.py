"""A small model, a short run, and two columns to train them on."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aem import AEM, ModelConfig, TrainConfig
from aem.training import fit
from aem.training.checkpoint import TrainingState

Table = NDArray[np.float64]

TINY = ModelConfig(
    hidden=16,
    blocks=1,
    gamma=4,
    energy_hidden=16,
    energy_blocks=1,
    components=3,
    frequencies=2,
    dropout=0.1,
    energy_dropout=0.1,
)
SHORT = TrainConfig(
    steps=24,
    batch_size=16,
    nodes=4,
    validate_every=5,
    averaging=0.9,
    warmup=3,
    device="cpu",
    checkpoint_seconds=0.0,
)


def ring(rows: int, seed: int = 0) -> Table:
    """Two columns on a ring of radius two, in odd units."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.random(rows) * 2 * np.pi, rng.normal(2, 0.2, rows)
    return np.stack((radius * np.cos(angle) * 30 + 7, radius * np.sin(angle)), 1)


TRAIN, VALIDATION = ring(150, 0), ring(50, 1)


def fresh(config: ModelConfig = TINY, data: Table = TRAIN, context: Table | None = None) -> AEM:
    torch.manual_seed(5)
    return AEM.for_data(config, data, context)


def run(
    config: TrainConfig = SHORT, folder: Path | None = None, **kw: Any
) -> tuple[AEM, TrainingState]:
    model = fresh()
    return model, fit(model, TRAIN, VALIDATION, config, folder=folder, quiet=True, **kw)


def assert_same(a: tuple[AEM, TrainingState], b: tuple[AEM, TrainingState]) -> None:
    """The same weights and the same history, bit for bit (but for the seconds it took)."""
    for name, tensor in a[0].state_dict().items():
        assert torch.equal(tensor, b[0].state_dict()[name]), name
    first, second = ([{**h, "seconds": 0} for h in p.history] for _, p in (a, b))
    assert first == second
    assert (a[1].step, a[1].best_step, a[1].best_score) == (
        b[1].step,
        b[1].best_step,
        b[1].best_score,
    )
