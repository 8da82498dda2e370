"""The progress of experiments, which show bars of their own between those of training."""

from contextlib import AbstractContextManager, nullcontext

from aem.base.display import ProgressDisplay
from aem.base.progress import Report, silent


class OneAtATime:
    """Shows one bar at a time, and removes it at the end, so that training can show its own."""

    def __init__(self) -> None:
        self.bars: ProgressDisplay | None = None

    def __enter__(self) -> "OneAtATime":
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.__exit__(None, None, None)
            self.bars = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how much of a task is done."""
        if self.bars is None:
            self.bars = ProgressDisplay().__enter__()
        self.bars(what, done, total)
        if done >= total:
            self.__exit__()


def shown(*, quiet: bool) -> AbstractContextManager[Report]:
    """Show the progress of an experiment, unless the user wants none.

    Parameters
    ----------
    quiet
        whether the user wants none.
    """
    return nullcontext(silent) if quiet else OneAtATime()
