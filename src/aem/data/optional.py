"""Modules that only some users need, imported at the moment they are needed."""

from importlib import import_module
from typing import Any

from aem.errors import AemError


def require(module: str, purpose: str) -> Any:
    """Import a module of the `data` extra, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise AemError(
            f"{purpose} needs the package {module}: pip install 'aem[data]' installs it."
        ) from error
