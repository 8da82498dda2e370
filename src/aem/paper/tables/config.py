"""Settings of an experiment on a table."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aem.base.settings import from_mapping
from aem.config import ModelConfig, TrainConfig
from aem.errors import AemError
from aem.evaluation.importance import PUBLISHED_SAMPLES
from aem.paper.presets import layered_settings

FULL_TABLES: Final = ("power", "power-maf", "gas", "hepmass", "miniboone", "bsds300")
SMALL_TABLES: Final = ("gas-10k", "hepmass-5k", "miniboone-40")
TABLES: Final = (*FULL_TABLES, *SMALL_TABLES)


@dataclass(frozen=True)
class TableTask:
    """Which table, and at most how many rows of each split (the first ones; 0: all).

    Models train on the rows' images under the first `symmetries` of the table's, one of which is the
    identity. With `spread`, columns that lie on a grid are spread evenly over its cells for training:
    otherwise a model may put all its mass on the grid, and there is no best one.
    """

    name: str = "power"
    train_rows: int = 0
    validation_rows: int = 0
    test_rows: int = 0
    symmetries: int = 1
    spread: bool = False

    def __post_init__(self) -> None:
        if self.symmetries < 1:
            raise AemError(f"symmetries must be positive, not {self.symmetries}")
        for name in ("train_rows", "validation_rows", "test_rows"):
            if getattr(self, name) < 0:
                raise AemError(f"{name} must not be negative, not {getattr(self, name)}")


@dataclass(frozen=True)
class EnsembleConfig:
    """How many models in how many column orders; the first keeps the order of the data.

    What is scored is their mean density over a row's images under the first `symmetries` of the
    table's. Automatic members are fitted as `aem fit` does it, with the validation rows to judge by:
    of the settings of model and training only seed and device count.
    """

    members: int = 1
    symmetries: int = 1
    automatic: bool = False

    def __post_init__(self) -> None:
        for name in ("members", "symmetries"):
            if getattr(self, name) < 1:
                raise AemError(f"{name} must be positive, not {getattr(self, name)}")


@dataclass(frozen=True)
class EvaluateConfig:
    """How many rows each score sees, the first ones of a split; 0 rows: not that score.

    The proposal is cheap and sees all rows. The others cost 10³ to 10⁶ energies a row, so a score
    may also be given a number of seconds, after which it stops where it is; started again, it goes
    on from there. How many rows it saw is recorded with it.
    """

    quadrature_rows: int = 10_000
    tolerance: float = 1e-3  # nats a row
    refinement_rows: int = 200  # scored again with more nodes, to put the stated error to the test
    importance_rows: int = 2_000
    importance_samples: int = PUBLISHED_SAMPLES
    kde_rows: int = 2_000
    kde_samples: int = PUBLISHED_SAMPLES
    kde_fit_rows: int = 200  # validation rows that fit its two numbers
    validation_rows: int = 1_000  # at most so many validation rows for each of the three
    seconds: float = 30.0  # a score of a split; 0: no limit

    def __post_init__(self) -> None:
        positive = ("quadrature_rows", "tolerance", "importance_samples", "kde_samples")
        for name in (*positive, "kde_fit_rows", "validation_rows"):
            if not getattr(self, name) > 0:
                raise AemError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("refinement_rows", "importance_rows", "kde_rows", "seconds"):
            if not getattr(self, name) >= 0:
                raise AemError(f"{name} must not be negative, not {getattr(self, name)}")


@dataclass(frozen=True)
class TableConfig:
    """One run: table, model, training, ensemble and evaluation."""

    task: TableTask = field(default_factory=TableTask)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)


def table_experiment(
    task: str, preset: str, file: Path | None = None, assignments: Sequence[str] = ()
) -> TableConfig:
    """A preset, under a user's TOML file, under single `section.key=value` settings."""
    config = from_mapping(TableConfig, layered_settings(task, preset, file, assignments))
    if config.task.name != task:
        raise AemError(f"the settings are for the table '{config.task.name}', not for '{task}'")
    return config
