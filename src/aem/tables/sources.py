"""Rows of a file, of a task in the plane, or of a data set by its name."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aem.data import registry
from aem.data.synthetic import PlaneTask
from aem.data.tasks import PLANE_TASKS, plane_task
from aem.errors import AemError
from aem.tables.reading import KINDS, kind_of, read_rows

TASK_ROWS = 1000
VALIDATION_ROWS = 2000


@dataclass(frozen=True)
class FoundRows:
    """Rows to evaluate a model on, with what is known about them.

    Parameters
    ----------
    name
        short name of the source.
    about
        the source in words, and how rows were chosen from it.
    values
        the held-out rows [B, D].
    validation
        validation rows, where the source has a split of its own.
    task
        the task in the plane, whose density is known.
    labels
        the rows' numbers in the source, where they are some of many.
    remarks
        what was assumed about a file, each a sentence for the user.
    """

    name: str
    about: str
    values: NDArray[np.float64]
    validation: NDArray[np.float64] | None = None
    task: PlaneTask | None = None
    labels: NDArray[np.int64] | None = None
    remarks: tuple[str, ...] = ()


def find_rows(
    source: str,
    columns: Sequence[str],
    *,
    rows: int | None = None,
    seed: int = 0,
    drop: Sequence[str] = (),
    ignore: Sequence[str] = (),
    delimiter: str | None = None,
) -> FoundRows:
    """Find the rows that `source` names.

    Parameters
    ----------
    source
        a file, a task in the plane, or the name of a data set.
    columns
        the columns of the model that the rows are for.
    rows
        how many to draw, or to take at random.
    seed
        seed of all random numbers.
    drop, ignore, delimiter
        how a file is read, as in `aem.tables.reading.read_rows`.
    """
    if rows is not None and rows < 1:
        raise AemError(f"the number of rows must be positive, not {rows}")
    if source in PLANE_TASKS:
        return _drawn(source, columns, rows or TASK_ROWS, seed)
    if source in {info.name for info in registry.datasets()}:
        splits = registry.load(source)
        _require_columns(source, len(splits.columns), columns)
        places = _places(splits.columns, columns)
        test, taken, labels = _some(splits.test[:, places].astype(np.float64), rows, seed)
        about = f"{source}, test split{taken}"
        validation = splits.validation[:, places].astype(np.float64)
        return FoundRows(source, about, test, validation, labels=labels)
    if kind_of(source) not in KINDS and not os.path.exists(source):
        known = ", ".join((*PLANE_TASKS, *(info.name for info in registry.datasets())))
        raise AemError(f"'{source}' is neither a file nor one of the names {known}")
    found = read_rows(source, wanted=columns, drop=drop, ignore=ignore, delimiter=delimiter)
    values, taken, labels = _some(found.values, rows, seed)
    return FoundRows(
        Path(source).stem, f"{source}{taken}", values, labels=labels, remarks=found.remarks
    )


def _drawn(name: str, columns: Sequence[str], rows: int, seed: int) -> FoundRows:
    task = plane_task(name)
    _require_columns(name, 2, columns)
    # Streams of their own: a small seed may well be the one the model was trained with.
    test, validation = (int(s) for s in np.random.SeedSequence([seed, 2]).generate_state(2))
    return FoundRows(
        name,
        f"{name}, {rows:,} rows drawn with seed {seed}",
        task.sample(rows, test).astype(np.float64),
        task.sample(VALIDATION_ROWS, validation).astype(np.float64),
        task,
    )


def _some(
    values: NDArray[np.float64], rows: int | None, seed: int
) -> tuple[NDArray[np.float64], str, NDArray[np.int64] | None]:
    if rows is None or rows >= len(values):
        return values, "", None
    chosen = np.sort(np.random.default_rng(seed).choice(len(values), rows, replace=False))
    return values[chosen], f", {rows:,} of {len(values):,} rows at random", chosen


def _places(found: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Return the positions of a model's columns in a data set: by name if possible, else in order."""
    known = sorted(found) == sorted(columns)
    return [list(found).index(name) for name in columns] if known else list(range(len(found)))


def _require_columns(name: str, found: int, columns: Sequence[str]) -> None:
    if len(columns) != found:
        raise AemError(
            f"{name} has {found} columns, the model has {len(columns)}: {', '.join(columns[:8])}"
        )
