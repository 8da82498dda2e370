"""Settings of an experiment in the plane."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aem.base.settings import (
    _require_not_negative,
    _require_positive,
    _require_types,
    from_mapping,
)
from aem.config import RESAMPLED, ModelConfig, TrainConfig
from aem.paper.presets import layered_settings


@dataclass(frozen=True)
class TaskConfig:
    """Which data, and how many rows of it (synthetic tasks draw what they are asked for)."""

    name: str = "spirals"
    image: str = ""  # picture of the image task; empty: the one that ships
    train_rows: int = 1_000_000
    validation_rows: int = 10_000
    test_rows: int = 100_000

    def __post_init__(self) -> None:
        _require_types(self)
        _require_positive(self, "train_rows", "validation_rows", "test_rows")


@dataclass(frozen=True)
class EvaluateConfig:
    """How test rows are scored, densities drawn and samples taken."""

    tolerance: float = 1e-3  # nats a row, of the quadrature
    # Draws of the proposal for each conditional, with which test rows are scored beside the
    # quadrature, and the density in the figure instead of it; 0 for neither.
    importance_samples: int = 0
    proposals: int = RESAMPLED  # that each value is chosen from where samples are resampled
    samples: int = 0  # rows of each histogram; 0: a million on a GPU, fewer on a CPU
    grid: int = 256  # points of the density along each axis

    def __post_init__(self) -> None:
        _require_types(self)
        _require_positive(self, "tolerance", "proposals", "grid")
        _require_not_negative(self, "importance_samples", "samples")


@dataclass(frozen=True)
class ExperimentConfig:
    """One run: task, model, training and evaluation."""

    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)


def experiment(
    task: str, preset: str, file: Path | None = None, assignments: Sequence[str] = ()
) -> ExperimentConfig:
    """The settings of a plane task."""
    return from_mapping(ExperimentConfig, layered_settings(task, preset, file, assignments))
