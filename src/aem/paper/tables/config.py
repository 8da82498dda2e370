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
    """The data set, and how many of its rows are used."""

    name: str = setting("power", "Name of the data set.")
    train_rows: int = setting(
        0, "Number of training rows, taken from the start; 0 for all.", at_least=0
    )
    validation_rows: int = setting(
        0, "Number of validation rows, taken from the start; 0 for all.", at_least=0
    )
    test_rows: int = setting(0, "Number of test rows, taken from the start; 0 for all.", at_least=0)
    symmetries: int = setting(
        1,
        "Number of the table's symmetries under which training rows are repeated; the first one is "
        "the identity.",
        at_least=1,
    )
    spread: bool = setting(
        False,
        "Whether training values of columns on a grid are spread uniformly over the grid's cells; "
        "otherwise the density on the grid, and the likelihood, have no upper bound.",
    )


@dataclass(frozen=True)
class EnsembleConfig(Settings):
    """The number of models that are averaged, and their column orders."""

    members: int = setting(
        1,
        "Number of models, each with its own column order; the first has the order of the data.",
        at_least=1,
    )
    symmetries: int = setting(
        1,
        "Number of symmetries over whose images of a row the density is averaged.",
        at_least=1,
    )
    automatic: bool = setting(
        False,
        "Whether members are fitted automatically, as by `aem fit`, with the validation rows of the "
        "data set; of the settings of model and training only seed and device then have an effect.",
    )


@dataclass(frozen=True)
class TableScoring(Settings):
    """How many rows each score sees, the first ones of a split; 0 rows: not that score.

    The proposal is cheap and sees all rows. The others cost 10³ to 10⁶ energies per row, so a score
    may also be given a number of seconds, after which it stops where it is; started again, it goes
    on from there. How many rows it saw is recorded with it.
    """

    quadrature_rows: int = setting(10_000, "Number of rows scored by quadrature.", at_least=1)
    tolerance: float = setting(1e-3, "Largest error of the quadrature, nats per row.", above=0)
    refinement_rows: int = setting(
        200, "Number of rows scored again with more nodes, to check the stated error.", at_least=0
    )
    importance_rows: int = setting(
        2_000, "Number of rows scored by importance sampling.", at_least=0
    )
    importance_samples: int = setting(
        PUBLISHED_SAMPLES, "Proposal samples per conditional.", at_least=1
    )
    kde_rows: int = setting(2_000, "Number of rows scored by AEM-KDE.", at_least=0)
    kde_samples: int = setting(PUBLISHED_SAMPLES, "Kernels per conditional.", at_least=1)
    kde_fit_rows: int = setting(
        200, "Number of validation rows that its two parameters are fitted on.", at_least=1
    )
    validation_rows: int = setting(
        1_000, "Largest number of validation rows for each score but the proposal's.", at_least=1
    )
    seconds: float = setting(
        30.0, "Time limit in seconds per score and split; 0 for none.", at_least=0
    )


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
    """Return the settings of a run: a preset, overridden by a TOML file and by single settings.

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
