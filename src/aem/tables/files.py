"""Files of models of tables: one model, or an ensemble of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aem.base.files import (
    as_mapping,
    blaming_file,
    header,
    part_of_file,
    read_tensors,
    write_tensors,
)
from aem.base.frames import NUMPY_NAMES
from aem.base.names import as_names
from aem.errors import AemError
from aem.model.files import NUMBER, OF_A_TABLE, model_entry, read_columns, read_model
from aem.model.transforms.records import from_records, to_records
from aem.tables.discrete import Discrete
from aem.tables.ensemble import TableEnsemble
from aem.tables.model import TableModel

DISCRETE = "discrete"  # the kind of a column whose values are counted
ENSEMBLE = "ensemble"
LEFT_OUT = "left_out"  # the key of the columns that took no part in the fit
DTYPES = "dtypes"  # the key of the types of the columns that are not float64


def save_table(table: TableModel, path: str | Path, kind: str = "model", **further: Any) -> None:
    """Write a model of a table.

    Parameters
    ----------
    table
        the model; the type of its weights is kept.
    path
        the file to write, whole or not at all.
    kind
        what the file is: "model", or "detector" where it is more than that.
    further
        more keys of the file, each of which JSON can hold.
    """
    metadata = {
        **header(kind),
        "columns": _columns(table),
        **_member(table),
        LEFT_OUT: table.left_out,
        "about": table.about,
        **({DTYPES: table.dtypes} if table.dtypes else {}),
        **further,
    }
    write_tensors(Path(path), table.model.state_dict(), metadata)


def save_ensemble(ensemble: TableEnsemble, path: str | Path) -> None:
    """Write all members of an ensemble to one file.

    Parameters
    ----------
    ensemble
        the ensemble; the types of its members' weights are kept.
    path
        the file to write, whole or not at all.
    """
    tensors = {
        f"{place}.{name}": tensor
        for place, member in enumerate(ensemble.members)
        for name, tensor in member.model.state_dict().items()
    }
    metadata = {
        **header(ENSEMBLE),
        "columns": _columns(ensemble),
        "members": [_member(member) for member in ensemble.members],
        LEFT_OUT: ensemble.left_out,
        "about": ensemble.about,
        **({DTYPES: ensemble.dtypes} if ensemble.dtypes else {}),
    }
    write_tensors(Path(path), tensors, metadata)


def load_table(path: str | Path, device: str | torch.device = "cpu") -> TableModel | TableEnsemble:
    """Read a model of a table or an ensemble.

    Parameters
    ----------
    path
        a file that a command or `save` wrote.
    device
        device of the models.
    """
    return _read(Path(path), (*OF_A_TABLE, ENSEMBLE), device)


def load_single(path: str | Path, device: str | torch.device = "cpu") -> TableModel:
    """Read the single model in a file; an ensemble is refused.

    Parameters
    ----------
    path
        a file of a model, a detector or a prior.
    device
        device of the model.
    """
    table = _read(Path(path), OF_A_TABLE, device)
    assert isinstance(table, TableModel)
    return table


def _read(
    path: Path, kinds: Sequence[str], device: str | torch.device
) -> TableModel | TableEnsemble:
    tensors, metadata = read_tensors(path, *kinds)
    with blaming_file(path, metadata["kind"]):
        entries = read_columns(metadata["columns"])
        about = as_mapping(metadata.get("about") or {}, "about")
        left_out = as_names(metadata.get(LEFT_OUT, []), LEFT_OUT)
        dtypes = _read_dtypes(metadata.get(DTYPES) or {})
        if metadata["kind"] != ENSEMBLE:
            table = _read_member(metadata, tensors, entries, left_out, about, device)
            table.dtypes = dtypes
            return table
        members = []
        for place, entry in enumerate(metadata["members"]):
            member, own = as_mapping(entry, "members"), part_of_file(tensors, str(place))
            members.append(_read_member(member, own, entries, left_out, {}, device))
            members[-1].dtypes = dtypes
        return TableEnsemble(members, about)


def _columns(table: TableModel | TableEnsemble) -> list[dict[str, Any]]:
    discrete = {column.column: column.as_record() for column in table.discrete}
    entries: list[dict[str, Any]] = []
    for name in table.columns:
        own = {k: v for k, v in discrete.get(name, {}).items() if k != "column"}
        entries.append({"name": name, "kind": DISCRETE if own else NUMBER, **own})
    return entries


def _member(table: TableModel) -> dict[str, Any]:
    return {"transforms": to_records(table.transform), "model": model_entry(table.model)}


def _read_member(
    entry: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    entries: Sequence[dict[str, Any]],
    left_out: Sequence[str],
    about: dict[str, Any],
    device: str | torch.device,
) -> TableModel:
    names = [column["name"] for column in entries]
    transform = from_records(entry["transforms"], len(names))
    model = read_model(entry["model"], tensors, transform.names(names), device)
    return TableModel(model, transform, _read_discrete(entries), about, names, left_out)


def _read_dtypes(entry: Any) -> dict[str, str]:
    """The types that this version knows: columns of others come back as float64."""
    dtypes = as_mapping(entry, DTYPES)
    return {name: dtype for name, dtype in dtypes.items() if dtype in NUMPY_NAMES.values()}


def _read_discrete(entries: Sequence[dict[str, Any]]) -> list[Discrete]:
    found = []
    for column in entries:
        if column["kind"] == DISCRETE:
            own = {k: v for k, v in column.items() if k not in ("name", "kind")}
            found.append(Discrete.from_record({**own, "column": column["name"]}))
        elif column["kind"] != NUMBER:
            raise AemError(
                f"column '{column['name']}' is of kind '{column['kind']}', which this aem does not "
                "know: the file may be from a newer version"
            )
    return found
