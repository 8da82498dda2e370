"""Names of columns: how they are matched with those of a model, and quoted in messages."""

from collections.abc import Sequence
from typing import Any

from aem.errors import AemError


class TableError(AemError, ValueError):
    """An `AemError` that is a ValueError as well, as scikit-learn expects of estimators."""


def unnamed(features: int) -> list[str]:
    """Return the names of columns that have none: x1, x2 and so on.

    Parameters
    ----------
    features
        D, the number of columns.
    """
    return [f"x{i + 1}" for i in range(features)]


def as_names(values: Any, name: str) -> list[str]:
    """Check that a value from a file is a list of names, and return it.

    Parameters
    ----------
    values
        what the file holds.
    name
        how the message calls it.
    """
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise AemError(f"'{name}' is not a list of names")
    return values


def places(names: Sequence[str], wanted: Sequence[str], what: str = "the data") -> list[int]:
    """Return the position of each of a model's columns in the data, matched by name.

    The order of columns does not matter; missing and unknown columns are errors. Columns of a model
    that was fitted without names (x1, x2, …) are matched by position.

    Parameters
    ----------
    names
        the columns of the data, no two alike.
    wanted
        the columns of the model.
    what
        how errors call the data.
    """
    if list(wanted) == unnamed(len(wanted)) and set(names) != set(wanted):
        if len(names) != len(wanted):
            raise TableError(f"{what} has {len(names)} columns, the model has {len(wanted)}")
        return [*range(len(names))]
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
    return [names.index(name) for name in wanted]


def listed(names: Sequence[str]) -> str:
    """Quote names for a message: 'a', 'b', … and no more than eight.

    Parameters
    ----------
    names
        one name at least.
    """
    shown = ", ".join(f"'{name}'" for name in names[:8])
    return shown + (", …" if len(names) > 8 else "")
