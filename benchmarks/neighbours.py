"""Processes that keep a machine busy while something else is measured."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aem.errors import AemError

# The process that started a neighbour may be killed before it can clean up; the neighbour then ends.
SPIN = """
import os, sys
print("busy", flush=True)
while os.getppid() == int(sys.argv[1]):
    for _ in range(100_000):
        pass
"""


@contextmanager
def neighbours(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Keep a number of single-threaded processes busy, and end them in any case.

    They share the session and the niceness of what is measured, but not its process group, so that
    Ctrl-C reaches this process alone.
    """
    busy: list[subprocess.Popen[str]] = []
    command = [sys.executable, "-I", "-S", "-c", SPIN, str(os.getpid())]
    try:
        for _ in range(count):
            busy.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
            )
        for process in busy:
            assert process.stdout is not None
            process.stdout.readline()  # it has started
        yield busy
        if any(process.poll() is not None for process in busy):
            raise AemError("a busy neighbour ended before the measurement did")
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
