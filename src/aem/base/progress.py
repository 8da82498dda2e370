"""How far long work has come, told to whoever wants to know: one kind of callback everywhere."""

from collections.abc import Callable

Report = Callable[[str, int, int], None]  # what is being done, how many are done, how many in all


def silent(what: str, done: int, total: int) -> None:
    """Report nothing: the `Report` of whoever does not listen.

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
    """Return a report that uses a name of the caller's, whatever the work calls itself.

    Parameters
    ----------
    report
        who is told in the end.
    name
        the name to use.
    """
    return lambda _, done, total: report(name, done, total)


def part_of(report: Report, part: int, parts: int) -> Report:
    """Return a report of one of several equal parts of the work, as a share of the whole.

    Parameters
    ----------
    report
        who is told in the end.
    part
        number of the part, from zero.
    parts
        how many parts there are.
    """
    return lambda what, done, total: report(what, part * total + done, parts * total)


def counting(report: Report, what: str, total: int) -> Callable[[int], None]:
    """Return a function that is told how many more are done, and reports how many are.

    Parameters
    ----------
    report
        who is told in the end.
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
