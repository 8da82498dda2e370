"""Sizes of the networks of an automatic fit, and how they are trained, from the size of the table."""

from dataclasses import dataclass, replace
from typing import Any

from aem.config import ModelConfig, TrainConfig
from aem.tables.fit.settings import FitSettings

# Below, a fit should take seconds; on the two tables looked at (142 and 455 rows) validation rows
# gained nothing from a network. Where between those and this it begins to pay was not measured.
FEWEST_ROWS_TO_TRAIN = 2000
BATCH = 256
PASSES = 24  # at most: a run may overfit earlier, and then stops
PATIENCE = 8
NODES = 8  # per conditional in training
RACE = 5  # the share of the steps that chooses a start is one in so many
# Steps × (columns + 20), which is about what they cost: meant to stay within five minutes on two cores.
AFFORDABLE = 100_000
# With many columns the Fourier features of each overfit; a wider network does not.
MANY_COLUMNS = 15
# Eight were better on one of the three tables tried, and worse on the other two.
FREQUENCIES = 4
FEW_COLUMNS = 4  # a narrow network is faster, and did well on the one such table that was tried
MANY_ROWS = 50_000  # without dropout from there on; tried on one table, of 100,000 rows
MIN_SCALE = 1e-3


@dataclass(frozen=True)
class FitPlan:
    """How to train the networks.

    Parameters
    ----------
    race
        the short training that chooses a start.
    training
        the training of what is kept.
    """

    race: TrainConfig
    training: TrainConfig


def plan_fit(
    rows: int, columns: int, settings: FitSettings, seed: int, device: str
) -> tuple[ModelConfig, FitPlan | None]:
    """Choose sizes of the networks and their training; no training for a table too small for it.

    Parameters
    ----------
    rows
        training rows that differ.
    columns
        columns of the table.
    settings
        what the user has set.
    seed, device
        of the training.
    """

    def given(name: str, otherwise: float) -> Any:
        value = getattr(settings, name)
        return otherwise if value is None else value

    trains = settings.steps != 0 and (settings.steps or rows >= FEWEST_ROWS_TO_TRAIN)
    if not trains:
        return ModelConfig(
            hidden=max(16, columns), blocks=2, gamma=1, energy_hidden=1, energy_blocks=0,
            proposal="anchored", min_scale=MIN_SCALE, frequencies=0,
        ), None  # fmt: skip
    few = columns < MANY_COLUMNS
    width = 64 if columns <= FEW_COLUMNS else 256 if few else 512
    model = ModelConfig(
        hidden=max(given("hidden", width), columns),
        blocks=2,
        dropout=given("dropout", 0.2 if rows < MANY_ROWS else 0.0),
        gamma=32,
        energy_hidden=48,
        energy_blocks=1,
        proposal="anchored",
        min_scale=MIN_SCALE,
        frequencies=given("frequencies", FREQUENCIES if few else 0),
    )
    batch = given("batch_size", BATCH)
    affordable = AFFORDABLE / (columns + 20)
    training = TrainConfig(
        steps=given("steps", int(min(max(rows * PASSES / batch, 100), affordable))),
        batch_size=batch,
        learning_rate=given("learning_rate", 3e-3),
        weight_decay=given("weight_decay", 0.05),
        nodes=NODES,
        averaging=0.995,
        patience=PATIENCE,
        seed=seed,
        device=device,
    )
    race = replace(training, steps=max(training.steps // RACE, 1))
    return model, FitPlan(_validated(race, 8), _validated(training, 30))


def _validated(config: TrainConfig, times: int) -> TrainConfig:
    """Return the same training with about so many validations."""
    return replace(config, validate_every=min(max(config.steps // times, 10), config.steps))
