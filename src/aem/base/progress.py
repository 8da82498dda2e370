"""How far long work has come, told to whoever wants to know."""

from collections.abc import Callable

Report = Callable[[str, int, int], None]  # what is being done, how many are done, how many in all


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""
