"""Transforms in files: a list of mappings, each with its kind."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints

from aem.base.files import FAULTS
from aem.errors import AemError
from aem.model.transforms.base import Chain, TableTransform
from aem.model.transforms.normal_scores import NormalScores
from aem.model.transforms.offset import Offset
from aem.model.transforms.permutation import Permutation
from aem.model.transforms.symmetry import Symmetry

KINDS: dict[str, type[TableTransform]] = {
    transform.kind: transform for transform in (NormalScores, Offset, Permutation, Symmetry)
}


def to_records(chain: Chain) -> list[dict[str, Any]]:
    """Return a chain as a list of mappings that JSON can hold.

    Parameters
    ----------
    chain
        transforms from the table to the model.
    """
    return [part.record() for part in chain.parts]


def from_records(records: Any, features: int) -> Chain:
    """Read a chain of transforms, or say what is damaged.

    Parameters
    ----------
    records
        what `to_records` gave.
    features
        number of columns of the table.
    """
    if not isinstance(records, Sequence) or isinstance(records, str):
        raise AemError("'transforms' is not a list")
    chain = Chain(tuple(_read(record) for record in records))
    chain.check(features)
    return chain


def _read(record: Any) -> TableTransform:
    kind = record.get("kind") if isinstance(record, dict) else record
    if not isinstance(record, dict) or not isinstance(kind, str) or kind not in KINDS:
        raise AemError(
            f"there is no transform '{kind}'; known: {', '.join(KINDS)}; the file may be from a "
            "newer version of aem"
        )
    transform: Any = KINDS[kind]
    given = {key: _frozen(value) for key, value in record.items() if key != "kind"}
    hints = get_type_hints(transform)
    wanted = {field.name: hints[field.name] for field in dataclasses.fields(transform)}
    damage = AemError(f"the transform '{kind}' is damaged")
    try:
        if given.keys() != wanted.keys() or not all(_fits(given[k], wanted[k]) for k in given):
            raise damage
        read: TableTransform = transform(**given)
    except FAULTS as error:
        raise damage from error
    return read


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of the type of a field: a finite number, or tuples of those."""
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(part, get_args(hint)[0]) for part in value)
    if hint in (int, float):
        number = isinstance(value, int | hint) and not isinstance(value, bool)
        return number and math.isfinite(value)
    return isinstance(value, hint)


def _frozen(value: Any) -> Any:
    """Convert lists to tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
