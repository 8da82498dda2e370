"""The progress callback of all long computations, and functions that adapt it."""

from collections.abc import Callable

Report = Callable[[str, int, int], None]  # the task, how much of it is done, how much there is


def silent(what: str, done: int, total: int) -> None:
    """Ignore progress: the default of every `Report`.

    Parameters
    ----------
    what
        what is being done.
    done
        how much of it is done.
    total
        how much there is.
    """


def named(report: Report, name: str) -> Report:
    """Return a callback that replaces the name of the task.

    Parameters
    ----------
    report
        the callback that is called.
    name
        the new name.
    """
    return lambda _, done, total: report(name, done, total)


def part_of(report: Report, part: int, parts: int) -> Report:
    """Return a callback for one of several equal parts, which reports progress of the whole.

    Parameters
    ----------
    report
        the callback that is called.
    part
        number of the part, from zero.
    parts
        how many parts there are.
    """
    return lambda what, done, total: report(what, part * total + done, parts * total)


def counting(report: Report, what: str, total: int) -> Callable[[int], None]:
    """Return a function that adds up increments of progress, and reports the sum.

    Parameters
    ----------
    report
        the callback that is called.
    what
        what is being done.
    total
        how many there are.
    """
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        report(what, done, total)

    return count
