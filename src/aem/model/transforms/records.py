"""Transforms as a file holds them: a list of mappings, each with its kind."""

import dataclasses
from collections.abc import Sequence
from typing import Any

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
    """Return what a file holds of a chain."""
    return [part.record() for part in chain.parts]


def from_records(records: Any, features: int) -> Chain:
    """Read a chain of a table of so many columns, or say what is damaged."""
    if not isinstance(records, Sequence) or isinstance(records, str):
        raise AemError("'transforms' is not a list")
    chain = Chain(tuple(_read(record) for record in records))
    chain.check(features)
    return chain


def _read(record: Any) -> TableTransform:
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        kind = record.get("kind") if isinstance(record, dict) else record
        raise AemError(
            f"there is no transform '{kind}'; known: {', '.join(KINDS)}. The file may be from a "
            "newer version of aem"
        )
    transform: Any = KINDS[record["kind"]]
    given = {key: _frozen(value) for key, value in record.items() if key != "kind"}
    wanted = {field.name for field in dataclasses.fields(transform)}
    if given.keys() != wanted:
        raise AemError(f"the transform '{record['kind']}' is damaged")
    read: TableTransform = transform(**given)
    return read


def _frozen(value: Any) -> Any:
    """Lists as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
