"""What commands print: sentences, JSON, and files that may be standard output.

How much commands print beside their results is set by `--quiet` and `--verbose`.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aem.base.files import finite, write_atomically
from aem.errors import AemError

STANDARD = "-"  # the standard streams

_QUIET, _USUAL, _VERBOSE = range(3)
_verbosity = _USUAL


def set_verbosity(*, quiet: bool = False, verbose: bool = False) -> None:
    """Set how much the program says from now on.

    Parameters
    ----------
    quiet
        nothing but results, warnings and errors.
    verbose
        details, too.
    """
    global _verbosity
    if quiet and verbose:
        raise AemError("--quiet and --verbose exclude each other")
    _verbosity = _QUIET if quiet else _VERBOSE if verbose else _USUAL


def is_quiet() -> bool:
    """Return whether the user wants nothing but results, warnings and errors."""
    return _verbosity == _QUIET


def is_verbose() -> bool:
    """Return whether the user wants details."""
    return _verbosity == _VERBOSE


def remark(*sentences: str) -> None:
    """Print assumptions about the input on standard error, unless `--quiet` is given.

    Parameters
    ----------
    sentences
        text without line ends.
    """
    if not is_quiet():
        warn(*sentences)


def warn(*sentences: str) -> None:
    """Print warnings on standard error, whatever the verbosity.

    Parameters
    ----------
    sentences
        text without line ends.
    """
    for sentence in sentences:
        print(f"aem: {sentence}", file=sys.stderr)


def detail(sentence: str) -> None:
    """Print a detail on standard error if `--verbose` is given.

    Parameters
    ----------
    sentence
        text without line ends.
    """
    if is_verbose():
        remark(sentence)


def write(out: str, content: bytes) -> None:
    """Write a file whole or not at all, or to standard output.

    Parameters
    ----------
    out
        the file's name, or `STANDARD`.
    content
        what is written.
    """
    if out != STANDARD:
        write_atomically(Path(out), content)
        return
    left = memoryview(content)
    try:
        while left:  # a stream without a buffer may take a part
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # whoever reads has had enough, which is no error
    except OSError as error:
        # What is left in the buffer must not be tried again when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise AemError(f"cannot write to standard output: {error.strerror}") from error


def say(*lines: str) -> None:
    """Print lines as they are, whatever brackets and colons are in the user's names.

    Parameters
    ----------
    lines
        text without line ends.
    """
    write(STANDARD, "".join(f"{line}\n" for line in lines).encode())


def as_markdown(rows: Iterable[Sequence[str]]) -> str:
    """Return cells as a table in Markdown.

    Parameters
    ----------
    rows
        rows of cells, the first of which is the head.
    """
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def as_json_text(record: Mapping[str, Any]) -> str:
    """Return a record as JSON; what is not finite becomes null.

    Parameters
    ----------
    record
        a mapping of plain values, which may be nested.
    """
    return json.dumps(finite(dict(record)), indent=2, allow_nan=False)
