"""What a person sees of a run: a progress bar, lines in a log, TensorBoard where it is installed."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aem.extras import installed


class Reporter:
    """A live bar on a terminal, one line a validation elsewhere; both go to standard error."""

    def __init__(self, steps: int, *, quiet: bool = False, tensorboard: Path | None = None) -> None:
        self.steps = steps
        self.console = Console(stderr=True)
        self.quiet = quiet
        self.live = self.console.is_terminal and not quiet
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}  validation {task.fields[validation]}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.bar.add_task("training", total=steps, loss="…", validation="…")
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
        """A batch of steps is done."""
        self.bar.update(self.task, completed=step, loss=f"{loss:.3f}")
        if self.writer is not None:
            self.writer.add_scalar("loss/train", loss, step)

    def validation(self, step: int, score: float, proposal: float, seconds: float) -> None:
        """A validation is done: mean log p and log q of the averaged model."""
        self.bar.update(self.task, validation=f"{score:.4f}")
        if self.writer is not None:
            self.writer.add_scalar("log_prob/validation", score, step)
            self.writer.add_scalar("log_prob/validation_proposal", proposal, step)
        if not self.live and not self.quiet:
            left = seconds / max(step, 1) * (self.steps - step)
            print(
                f"step {step}/{self.steps}  validation {score:.4f}  proposal {proposal:.4f}"
                f"  {seconds:.0f} s, about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
