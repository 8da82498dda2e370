"""How far long work has come, told to whoever wants to know: one kind of callback everywhere."""

from collections.abc import Callable

Report = Callable[[str, int, int], None]  # what is being done, how many are done, how many in all


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


def named(report: Report, name: str) -> Report:
    """Report under a name of the caller's, whatever the work calls itself."""
    return lambda _, done, total: report(name, done, total)


def part_of(report: Report, part: int, parts: int) -> Report:
    """Report one of several equal parts of the work as a share of the whole."""
    return lambda what, done, total: report(what, part * total + done, parts * total)


def counting(report: Report, what: str, total: int) -> Callable[[int], None]:
    """Return a function that is told how many more are done."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        report(what, done, total)

    return count
