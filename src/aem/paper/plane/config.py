"""Settings of an experiment in the plane."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aem.base.settings import Settings, from_mapping, setting
from aem.config import RESAMPLED, ModelConfig, TrainConfig
from aem.paper.presets import layered_settings


@dataclass(frozen=True)
class TaskConfig(Settings):
    """The task, and how many rows are drawn."""

    name: str = setting("spirals", "Name of the task.")
    image: str = setting(
        "", "Picture of the image task; empty for the picture that the package contains."
    )
    train_rows: int = setting(1_000_000, "Number of training rows.", at_least=1)
    validation_rows: int = setting(
        10_000, "Number of validation rows, which decide which weights are kept.", at_least=1
    )
    test_rows: int = setting(100_000, "Number of test rows.", at_least=1)


@dataclass(frozen=True)
class PlaneScoring(Settings):
    """How test rows are scored, densities drawn and samples taken."""

    tolerance: float = setting(1e-3, "Largest error of the quadrature, nats per row.", above=0)
    importance_samples: int = setting(
        0,
        "Proposal samples per conditional. Test rows are then scored by importance sampling as well, "
        "and the density in the figure is computed so; 0 for quadrature alone.",
        at_least=0,
    )
    proposals: int = setting(
        RESAMPLED, "Proposal draws from which each value is resampled.", at_least=1
    )
    samples: int = setting(
        0, "Samples per histogram; 0 for a million on a GPU, and fewer on a CPU.", at_least=0
    )
    grid: int = setting(256, "Grid points along each axis of the density plot.", at_least=1)


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
