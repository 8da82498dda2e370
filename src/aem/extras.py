"""Optional packages: imported where they are needed; errors name the extra that installs them."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from aem.errors import AemError

Extra = Literal["data", "paper"]


def require(module: str, purpose: str, extra: Extra) -> Any:
    """Import a module of an optional package, or say in one sentence what installs it.

    Parameters
    ----------
    module
        The module's full name.
    purpose
        What needs it, as the subject of a sentence, such as "reading a picture".
    extra
        The extra of `aem` that brings the package.
    """
    check_installed(module.partition(".")[0], purpose, extra)
    return import_module(module)


def check_installed(package: str, purpose: str, extra: Extra) -> None:
    """Refuse to go on without an optional package, before it is imported.

    Parameters
    ----------
    package
        The name it is imported by.
    purpose
        What needs it, as the subject of a sentence, such as "reading a picture".
    extra
        The extra of `aem` that brings the package.
    """
    if not installed(package):
        raise AemError(
            f"{purpose} needs the package {package}: pip install 'aem[{extra}]' installs it"
        )


def installed(package: str) -> bool:
    """Whether a package can be imported.

    Parameters
    ----------
    package
        The name it is imported by.
    """
    try:
        return find_spec(package) is not None
    except ValueError:  # something stands in its place
        return False
