"""A run through its steps: losses watched, best weights kept, checkpoints written, stops survived."""

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

LOOK_EVERY = 50  # steps between looks at the loss where looking makes the host wait


@runtime_checkable
class RunLength(Protocol):
    """How long a run lasts, and how often it stops to look."""

    @property
    def steps(self) -> int:
        """At most."""

    @property
    def validate_every(self) -> int:
        """Steps."""

    @property
    def patience(self) -> int:
        """Validations without a better one before it ends; zero for no end."""

    @property
    def checkpoint_seconds(self) -> float:
        """Between two checkpoints."""


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every number in them is."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


@dataclass(frozen=True)
class Validation:
    """What the averaged model is worth."""

    score: float  # decides which weights are best
    beside: float  # shown with it
    record: dict[str, float]  # for the history


@dataclass(frozen=True)
class TrainingRun:
    """All that a run needs besides where it stands."""

    plan: RunLength
    step: Step
    batches: Batches
    average: nn.Module  # whose weights are validated and kept
    validate: Callable[[], Validation]
    finite: Callable[[], bool]  # whether all weights are
    write: Callable[[Path, TrainingState], None]  # a checkpoint
    reporter: Reporter
    checkpoint: Path | None
    advice: str  # when numbers explode

    def go_on(self, progress: TrainingState) -> None:
        """From where it stands to its end."""
        started = time.monotonic() - progress.seconds
        try:
            self._steps(progress, started)
        except KeyboardInterrupt:
            # In the middle of a step the state is no step's: what counts is the last checkpoint.
            where = ""
            if self.checkpoint is not None:
                where = f"; run the same command again to go on from {self.checkpoint.parent}"
            raise Interrupted(f"interrupted at step {progress.step}{where}") from None
        progress.seconds = time.monotonic() - started

    def _steps(self, progress: TrainingState, started: float) -> None:
        plan, saved = self.plan, time.monotonic()
        look_every = 1 if self.batches.device.type == "cpu" else LOOK_EVERY
        while progress.step < plan.steps and not self._exhausted(progress):
            loss = self.step(progress.step, self.batches.indices(progress.step))
            progress.step += 1
            step = progress.step
            validating = step % plan.validate_every == 0 or step == plan.steps
            if not (validating or step % look_every == 0):
                continue
            value = float(loss)
            if not math.isfinite(value):
                raise AemError(self._explosion(f"the loss became {value}", step))
            if step % LOOK_EVERY == 0:
                self.reporter.step(step, value)
            if validating:
                found, seconds = self.validate(), time.monotonic() - started
                self._keep(progress, value, found, seconds)
                self.reporter.validation(
                    step, found.score, found.beside, progress.best_score, seconds
                )
            if time.monotonic() - saved > plan.checkpoint_seconds:
                self._save(progress, started)
                saved = time.monotonic()
        self._save(progress, started)

    def _keep(
        self, progress: TrainingState, loss: float, found: Validation, seconds: float
    ) -> None:
        entry = {"step": progress.step, "seconds": round(seconds, 3), "loss": loss}
        progress.history.append({**entry, **found.record})
        if found.score > progress.best_score:
            progress.best_score, progress.best_step = found.score, progress.step
            state = self.average.state_dict()
            progress.best_weights = {k: v.detach().clone() for k, v in state.items()}

    def _exhausted(self, progress: TrainingState) -> bool:
        """Early stopping: no better validation for `patience` validations in a row."""
        waited = (progress.step - progress.best_step) // self.plan.validate_every
        patience = self.plan.patience
        return bool(patience and progress.best_weights and waited >= patience)

    def _save(self, progress: TrainingState, started: float) -> None:
        # A finite loss may have had a gradient that was not: never save what it left.
        if not self.finite():
            raise AemError(self._explosion("the weights stopped being finite", progress.step))
        if self.checkpoint is not None:
            progress.seconds = time.monotonic() - started
            self.write(self.checkpoint, progress)

    def _explosion(self, what: str, step: int) -> str:
        last = "no checkpoint was written"
        if self.checkpoint is not None and self.checkpoint.exists():
            last = f"the last good checkpoint is {self.checkpoint}"
        return f"{what} at step {step}; {last}; {self.advice}"
