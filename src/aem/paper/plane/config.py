"""Settings of an experiment in the plane."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aem.base.settings import Settings, from_mapping, setting
from aem.config import RESAMPLED, ModelConfig, TrainConfig
from aem.paper.presets import layered_settings


@dataclass(frozen=True)
class TaskConfig(Settings):
    """Which data, and how many rows of it: synthetic tasks draw what they are asked for."""

    name: str = setting("spirals", "The task.")
    image: str = setting("", "The picture of the image task; empty: the one that ships.")
    train_rows: int = setting(1_000_000, "Rows to train on.", at_least=1)
    validation_rows: int = setting(10_000, "Rows that choose the weights to keep.", at_least=1)
    test_rows: int = setting(100_000, "Rows to score.", at_least=1)


@dataclass(frozen=True)
class PlaneScoring(Settings):
    """How test rows are scored, densities drawn and samples taken."""

    tolerance: float = setting(1e-3, "Largest error of the quadrature, nats per row.", above=0)
    importance_samples: int = setting(
        0,
        "Draws of the proposal for each conditional, with which test rows are scored beside the "
        "quadrature, and the density in the figure instead of it; 0 for neither.",
        at_least=0,
    )
    proposals: int = setting(
        RESAMPLED, "Draws that each value is chosen from where samples are resampled.", at_least=1
    )
    samples: int = setting(
        0, "Rows of each histogram; 0: a million on a GPU, fewer on a CPU.", at_least=0
    )
    grid: int = setting(256, "Points of the density along each axis.", at_least=1)


@dataclass(frozen=True)
class ExperimentConfig:
    """The settings of one run in the plane.

    Parameters
    ----------
    task
        which data, and how many rows of it.
    model
        sizes and forms of the networks.
    train
        how they are trained.
    evaluate
        how test rows are scored and figures drawn.
    """

    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: PlaneScoring = field(default_factory=PlaneScoring)


def experiment(
    task: str, preset: str, file: Path | None = None, assignments: Sequence[str] = ()
) -> ExperimentConfig:
    """Return the settings of a plane task.

    Parameters
    ----------
    task
        name of the task.
    preset
        "fast", "paper" or "best".
    file
        a TOML file whose settings are laid over the preset.
    assignments
        single settings laid over both, as `section.key=value`.
    """
    return from_mapping(ExperimentConfig, layered_settings(task, preset, file, assignments))
