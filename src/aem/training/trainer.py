"""The training loop: losses are checked, the best weights kept, checkpoints written, runs continued."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from aem.errors import AemError, Interrupted
from aem.training.batches import Batches
from aem.training.checkpoint import TrainingState
from aem.training.display import Reporter
from aem.training.steps import Step

LOOK_EVERY = 50  # steps between two checks of the loss on a GPU, as each check waits for the GPU


@runtime_checkable
class RunLength(Protocol):
    """The settings that say when a run validates, writes checkpoints and ends."""

    @property
    def steps(self) -> int:
        """Largest number of training steps."""

    @property
    def validate_every(self) -> int:
        """Steps between two validations."""

    @property
    def patience(self) -> int:
        """Validations without improvement after which training stops early; zero for never."""

    @property
    def checkpoint_seconds(self) -> float:
        """Seconds between two checkpoints."""


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Return whether all numbers of all tensors are finite."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


@dataclass(frozen=True)
class Validation:
    """Scores of the averaged weights on the validation set.

    Parameters
    ----------
    score
        the score that decides which weights are best.
    beside
        a second score, shown with the first.
    record
        all scores by name, for the history.
    """

    score: float
    beside: float
    record: dict[str, float]


@dataclass(frozen=True)
class Trainer:
    """Trains a model step by step, with validation, early stopping and checkpoints.

    Parameters
    ----------
    length
        when to validate, to write checkpoints and to stop.
    step
        the training step.
    batches
        the rows of each step.
    average
        the model with averaged weights, which are validated and kept.
    validate
        a function that scores the averaged weights.
    finite
        a function that tells whether all weights are finite.
    write
        a function that writes a checkpoint.
    reporter
        shows the progress.
    checkpoint
        the checkpoint's file; none is written without one.
    advice
        what to try if the loss or the weights become infinite or NaN, for the error message.
    """

    length: RunLength
    step: Step
    batches: Batches
    average: nn.Module
    validate: Callable[[], Validation]
    finite: Callable[[], bool]
    write: Callable[[Path, TrainingState], None]
    reporter: Reporter
    checkpoint: Path | None
    advice: str

    def train(self, state: TrainingState) -> None:
        """Train from the current step until the last one or early stopping.

        Parameters
        ----------
        state
            the state of the run, which is updated.
        """
        started = time.monotonic() - state.seconds
        try:
            self._steps(state, started)
        except KeyboardInterrupt:
            # The weights may be halfway through a step, so a new run continues from a checkpoint.
            where = ""
            if self.checkpoint is not None:
                where = f"; run the same command again to go on from {self.checkpoint.parent}"
            state.seconds = time.monotonic() - started
            raise Interrupted(f"interrupted at step {state.step}{where}", state) from None
        state.seconds = time.monotonic() - started

    def _steps(self, state: TrainingState, started: float) -> None:
        length, saved = self.length, time.monotonic()
        look_every = 1 if self.batches.device.type == "cpu" else LOOK_EVERY
        while state.step < length.steps and not self._stops_early(state):
            loss = self.step(state.step, self.batches.indices(state.step))
            state.step += 1
            step = state.step
            validating = step % length.validate_every == 0 or step == length.steps
            if not (validating or step % look_every == 0):
                continue
            value = float(loss)
            if not math.isfinite(value):
                raise AemError(self._explosion(f"the loss became {value}", step))
            if step % LOOK_EVERY == 0:
                self.reporter.step(step, value)
            if validating:
                found, seconds = self.validate(), time.monotonic() - started
                self._keep_best(state, value, found, seconds)
                self.reporter.validation(step, found.score, found.beside, state.best_score, seconds)
            if time.monotonic() - saved > length.checkpoint_seconds:
                self._save(state, started)
                saved = time.monotonic()
        self._save(state, started)

    def _keep_best(
        self, state: TrainingState, loss: float, found: Validation, seconds: float
    ) -> None:
        """Add a validation to the history, and keep the weights if they are the best so far."""
        entry = {"step": state.step, "seconds": round(seconds, 3), "loss": loss}
        state.history.append({**entry, **found.record})
        if found.score > state.best_score:
            state.best_score, state.best_step = found.score, state.step
            weights = self.average.state_dict()
            state.best_weights = {k: v.detach().clone() for k, v in weights.items()}

    def _stops_early(self, state: TrainingState) -> bool:
        """Return whether the last `patience` validations brought no improvement."""
        waited = (state.step - state.best_step) // self.length.validate_every
        patience = self.length.patience
        return bool(patience and state.best_weights and waited >= patience)

    def _save(self, state: TrainingState, started: float) -> None:
        # A step with a finite loss may have infinite gradients: never save what it left.
        if not self.finite():
            raise AemError(self._explosion("the weights stopped being finite", state.step))
        if self.checkpoint is not None:
            state.seconds = time.monotonic() - started
            self.write(self.checkpoint, state)

    def _explosion(self, what: str, step: int) -> str:
        last = "no checkpoint was written"
        if self.checkpoint is not None and self.checkpoint.exists():
            last = f"the last good checkpoint is {self.checkpoint}"
        return f"{what} at step {step}; {last}; {self.advice}"
