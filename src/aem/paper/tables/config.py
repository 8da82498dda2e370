"""Settings of an experiment on a table."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aem.base.settings import Settings, from_mapping, setting
from aem.config import ModelConfig, TrainConfig
from aem.errors import AemError
from aem.evaluation.importance import PUBLISHED_SAMPLES
from aem.paper.presets import layered_settings

FULL_TABLES: Final = ("power", "power-maf", "gas", "hepmass", "miniboone", "bsds300")
SMALL_TABLES: Final = ("gas-10k", "hepmass-5k", "miniboone-40")
TABLES: Final = (*FULL_TABLES, *SMALL_TABLES)


@dataclass(frozen=True)
class TableTask(Settings):
    """Which table, and how much of it."""

    name: str = setting("power", "The table.")
    train_rows: int = setting(0, "The first so many training rows; 0: all.", at_least=0)
    validation_rows: int = setting(0, "The first so many validation rows; 0: all.", at_least=0)
    test_rows: int = setting(0, "The first so many test rows; 0: all.", at_least=0)
    symmetries: int = setting(
        1,
        "Models train on the rows' images under so many of the table's symmetries, the first of "
        "which is the identity.",
        at_least=1,
    )
    spread: bool = setting(
        False,
        "Whether columns that lie on a grid are spread evenly over its cells for training: otherwise "
        "a model may put all its mass on the grid, and there is no best one.",
    )


@dataclass(frozen=True)
class EnsembleConfig(Settings):
    """How many models are averaged, and in how many column orders."""

    members: int = setting(
        1,
        "Models, each in a column order of its own; the first keeps that of the data.",
        at_least=1,
    )
    symmetries: int = setting(
        1,
        "A row is scored by the mean density of its images under so many of the table's symmetries.",
        at_least=1,
    )
    automatic: bool = setting(
        False,
        "Whether members are fitted as `aem fit` does it, with the validation rows to judge by: of "
        "the settings of model and training only seed and device count then.",
    )


@dataclass(frozen=True)
class TableScoring(Settings):
    """How many rows each score sees, the first ones of a split; 0 rows: not that score.

    The proposal is cheap and sees all rows. The others cost 10³ to 10⁶ energies per row, so a score
    may also be given a number of seconds, after which it stops where it is; started again, it goes
    on from there. How many rows it saw is recorded with it.
    """

    quadrature_rows: int = setting(10_000, "Rows scored by quadrature.", at_least=1)
    tolerance: float = setting(1e-3, "Largest error of the quadrature, nats per row.", above=0)
    refinement_rows: int = setting(
        200, "Rows scored again with more nodes, to put the stated error to the test.", at_least=0
    )
    importance_rows: int = setting(2_000, "Rows scored by importance sampling.", at_least=0)
    importance_samples: int = setting(PUBLISHED_SAMPLES, "Its draws per conditional.", at_least=1)
    kde_rows: int = setting(2_000, "Rows scored by AEM-KDE.", at_least=0)
    kde_samples: int = setting(PUBLISHED_SAMPLES, "Its kernels per conditional.", at_least=1)
    kde_fit_rows: int = setting(200, "Validation rows that fit its two numbers.", at_least=1)
    validation_rows: int = setting(
        1_000, "At most so many validation rows for each of the three scores.", at_least=1
    )
    seconds: float = setting(30.0, "Seconds per score and split; 0: no limit.", at_least=0)


@dataclass(frozen=True)
class TableConfig:
    """The settings of one run on a table.

    Parameters
    ----------
    task
        which table, and how much of it.
    model
        sizes and forms of the networks.
    train
        how they are trained.
    ensemble
        how many models are averaged.
    evaluate
        how many rows each score sees.
    """

    task: TableTask = field(default_factory=TableTask)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    evaluate: TableScoring = field(default_factory=TableScoring)


def table_experiment(
    task: str, preset: str, file: Path | None = None, assignments: Sequence[str] = ()
) -> TableConfig:
    """Return the settings of a table's run: a preset, under a TOML file, under single settings.

    Parameters
    ----------
    task
        name of the table.
    preset
        "fast", "paper" or "best".
    file
        a TOML file whose settings are laid over the preset.
    assignments
        single settings laid over both, as `section.key=value`.
    """
    config = from_mapping(TableConfig, layered_settings(task, preset, file, assignments))
    if config.task.name != task:
        raise AemError(f"the settings are for the table '{config.task.name}', not for '{task}'")
    return config
