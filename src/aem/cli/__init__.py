"""The program: bad input is one sentence on standard error and exit code 2, an interruption 130."""

import os
import sys

from aem.errors import AemError


def main() -> None:
    """Run the program."""
    _wait_politely()
    try:
        # Here, because it takes seconds in which a user may change their mind.
        from aem.cli.app import run

        run()
    except AemError as error:
        _stop(str(error), 2)
    except KeyboardInterrupt as stopped:
        _stop(str(stopped) or "interrupted", 130)


def _wait_politely() -> None:
    """Let threads of PyTorch and others sleep while they wait, unless the user has said how to wait.

    They would spin, which takes time from whatever else runs on the machine, and from each other.
    Libraries read this when they are loaded, so it must come before.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _stop(sentence: str, code: int) -> None:
    print(f"aem: {sentence}", file=sys.stderr)
    sys.exit(code)
