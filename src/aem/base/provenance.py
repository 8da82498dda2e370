"""Where a number comes from: written into every result."""

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from aem.base.settings import to_mapping
from aem.base.threads import get_threads


def device_name(device: torch.device) -> str:
    """The device in words, as a reader of a table wants it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {get_threads()} threads, {platform.machine()}"


def commit() -> str | None:
    """The commit of the checkout this package runs from; None for an installed one.

    AEM_COMMIT tells it where the checkout was copied without its history.
    """
    if "AEM_COMMIT" in os.environ:
        return os.environ["AEM_COMMIT"]
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def command_line() -> str:
    """How the program was called, without the path it happens to be installed under."""
    program = Path(sys.argv[0])
    by_module = program.parts[-3:] == ("aem", "cli", "__main__.py")  # python -m aem.cli
    return shlex.join(["aem" if by_module else program.name, *sys.argv[1:]])


def provenance(config: Any, seed: int, device: torch.device) -> dict[str, Any]:
    """The fields every result file carries."""
    return {
        "command": command_line(),
        "config": to_mapping(config),
        "seed": seed,
        "device": device_name(device),
        "commit": commit(),
        "torch": torch.__version__,
    }
