"""The progress of long computations on standard error: bars on a terminal, lines elsewhere.

`--quiet` shows none.
"""

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from aem.base.console import is_quiet
from aem.errors import Interrupted

SECONDS_BETWEEN_LINES = 10.0


class ProgressDisplay:
    """Shows progress when it is called with (what, done, total); each `what` has its own bar."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self.quiet = is_quiet()
        self.live = console.is_terminal and not self.quiet
        self.bars = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self.tasks: dict[str, tuple[TaskID, float]] = {}  # bar and start of each piece of work
        self.said = self.reported = time.monotonic()
        self.last = ""

    def __enter__(self) -> Self:
        if self.live:  # elsewhere some versions of rich would end them with an empty line
            self.bars.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.live:
            self.bars.stop()
        if isinstance(error, KeyboardInterrupt) and self.last:
            raise Interrupted(f"interrupted after {self.last}") from None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how much of a task is done."""
        now = time.monotonic()
        if what not in self.tasks:
            # The first report of a piece of work comes when some of it is done already.
            self.tasks[what] = (self.bars.add_task(what, total=total), self.reported)
        bar, started = self.tasks[what]
        self.bars.update(bar, completed=done, total=total)
        self.reported = now
        self.last = f"{what}: {done:,} of {total:,}"
        if not self.live and not self.quiet and now - self.said > SECONDS_BETWEEN_LINES:
            self.said = now
            left = (now - started) / max(done, 1) * (total - done)
            print(f"{self.last}, about {left:.0f} s left", file=sys.stderr, flush=True)
