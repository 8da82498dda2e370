"""The command line: bad input ends with one sentence and exit code 2, an interruption with 130."""

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
    """Let idle threads of OpenMP sleep, unless the user has set OMP_WAIT_POLICY.

    They would spin, which takes time from whatever else runs on the machine, and from each other.
    Libraries read this when they are loaded, so it must come before.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _stop(sentence: str, code: int) -> None:
    print(f"aem: {sentence}", file=sys.stderr)
    sys.exit(code)
