"""Paths of the repository, for benchmarks."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commit_of(checkout: Path) -> str | None:
    """Return the commit of an older checkout."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
