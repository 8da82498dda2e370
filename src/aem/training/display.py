"""The progress of a training run: a bar, lines in a log, and TensorBoard where it is installed."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aem.extras import installed


class Reporter:
    """Shows a progress bar on a terminal, or a line per validation elsewhere, on standard error.

    Parameters
    ----------
    steps
        largest number of steps of the run.
    quiet
        whether to show nothing.
    tensorboard
        a folder for TensorBoard, where that is installed.
    stage
        name of the run.
    beside
        name of the second score of a validation.
    """

    def __init__(
        self,
        steps: int,
        *,
        quiet: bool = False,
        tensorboard: Path | None = None,
        stage: str = "training",
        beside: str = "proposal",
    ) -> None:
        self.steps, self.stage, self.beside = steps, stage, beside
        self.console = Console(stderr=True)
        self.quiet = quiet
        self.live = self.console.is_terminal and not quiet
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(
                "loss {task.fields[loss]}  validation {task.fields[validation]}"
                "  best {task.fields[best]}"
            ),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.bar.add_task(stage, total=steps, loss="…", validation="…", best="…")
        self.writer = None
        if tensorboard is not None and installed("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(tensorboard))

    def __enter__(self) -> Self:
        if self.live:  # elsewhere some versions of rich would end it with an empty line
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live:
            self.bar.stop()
        if self.writer is not None:
            self.writer.close()

    def step(self, step: int, loss: float) -> None:
        """Show the loss after a step."""
        self.bar.update(self.task, completed=step, loss=f"{loss:.3f}")
        if self.writer is not None:
            self.writer.add_scalar("loss/train", loss, step)

    def validation(
        self, step: int, score: float, beside: float, best: float, seconds: float
    ) -> None:
        """Show the scores of a validation.

        Parameters
        ----------
        step
            number of steps so far.
        score, beside
            the two scores of the averaged weights.
        best
            the best score so far.
        seconds
            seconds since the run began.
        """
        self.bar.update(self.task, validation=f"{score:.4f}", best=f"{best:.4f}")
        if self.writer is not None:
            self.writer.add_scalar("validation/score", score, step)
            self.writer.add_scalar(f"validation/{self.beside}", beside, step)
        if not self.live and not self.quiet:
            left = seconds / max(step, 1) * (self.steps - step)
            print(
                f"{self.stage}: step {step}/{self.steps}  validation {score:.4f}"
                f"  {self.beside} {beside:.4f}  best {best:.4f}"
                f"  {seconds:.0f} s, about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
