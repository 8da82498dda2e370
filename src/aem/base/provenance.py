"""The origin of results: command, settings, seed, device and commit, written into every file."""

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
    """Return the name of a device for readers of results.

    Parameters
    ----------
    device
        the device that was used.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {get_threads()} threads, {platform.machine()}"


def commit() -> str | None:
    """Return the commit of the checkout that this package runs from; None if it is installed.

    The environment variable AEM_COMMIT names it for a copy of a checkout without its history.
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
    """Return the command line of this process in a form that works on other machines.

    `python -m NAME` is named by its module, `aem` by its name wherever it is installed, and a script
    by the path that was typed, or by its file name if that was an absolute path.
    """
    program, *arguments = sys.argv
    return shlex.join([*_program(program), *arguments])


def _program(program: str) -> list[str]:
    module = getattr(sys.modules["__main__"], "__spec__", None)
    if module is not None and module.origin == program:  # python -m: the path is the module's
        name = module.name.removesuffix(".__main__")
        return ["aem"] if name == "aem.cli" else ["python", "-m", name]
    path = Path(program)
    if path.suffix == ".py":
        return ["python", path.name if path.is_absolute() else program]
    return [path.name]


def provenance(config: Any, seed: int, device: torch.device) -> dict[str, Any]:
    """Return the fields that every result file carries.

    Parameters
    ----------
    config
        the settings, a dataclass.
    seed
        seed of the run.
    device
        the device of the run.
    """
    return {
        "command": command_line(),
        "config": to_mapping(config),
        "seed": seed,
        "device": device_name(device),
        "commit": commit(),
        "torch": torch.__version__,
    }
