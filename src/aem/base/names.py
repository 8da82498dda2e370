"""Names of columns: matched with those a model knows, and listed in a sentence."""

from collections.abc import Sequence

from aem.errors import AemError


class TableError(AemError, ValueError):
    """Bad input to an estimator: scikit-learn's conventions ask for a ValueError."""


def unnamed(features: int) -> list[str]:
    """Names of columns that have none."""
    return [f"x{i + 1}" for i in range(features)]


def match_names(names: Sequence[str], wanted: Sequence[str], what: str = "the data") -> None:
    """Refuse columns that are missing and columns nobody has seen."""
    missing = [name for name in wanted if name not in names]
    if missing:
        raise TableError(
            f"{what} has no column {listed(missing)}, which the model was fitted on; "
            f"it has {listed(names)}"
        )
    unseen = [name for name in names if name not in wanted]
    if unseen:
        raise TableError(
            f"{what} has a column {listed(unseen)} the model was not fitted on; "
            f"it knows {listed(wanted)}"
        )


def listed(names: Sequence[str]) -> str:
    """'a', 'b', …"""
    shown = ", ".join(f"'{name}'" for name in names[:8])
    return shown + (", …" if len(names) > 8 else "")
