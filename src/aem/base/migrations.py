"""Conversion of files of earlier format versions to the present one.

Format 1 (aem 0.1) kept the transforms and discrete columns of a table's model in the free-form
`about`. Format 2 has separate keys for columns, transforms and model.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from aem.base.names import as_names
from aem.errors import AemError

Tensors = dict[str, Tensor]
Metadata = dict[str, Any]

STANDARDISATION = ("shift", "scale", "slopes")


def to_current(tensors: Tensors, metadata: Metadata, version: int) -> tuple[Tensors, Metadata]:
    """Bring the content of a file to the present format, one version after the other.

    Parameters
    ----------
    tensors
        the tensors by name.
    metadata
        what the file says about itself.
    version
        the format version that the file has.

    Returns
    -------
    tensors : dict of tensor
        the tensors under their present names.
    metadata : dict
        the metadata under its present keys.
    """
    for known in sorted(MIGRATIONS):
        if version <= known:
            tensors, metadata = MIGRATIONS[known](tensors, metadata)
            metadata = {**metadata, "format_version": known + 1}
    return tensors, _with_left_out(metadata)


def _with_left_out(metadata: Metadata) -> Metadata:
    """Add the key `left_out`; before there was one, `about` had these columns as "dropped"."""
    about = metadata.get("about")
    if "left_out" in metadata or not isinstance(about, dict) or "dropped" not in about:
        return metadata
    return {**metadata, "left_out": about["dropped"]}


def _from_1(tensors: Tensors, metadata: Metadata) -> tuple[Tensors, Metadata]:
    tensors = {_renamed(name, tensors): tensor for name, tensor in tensors.items()}
    if metadata["kind"] == "model":
        metadata = _model_from_1(metadata)
    elif metadata["kind"] == "ensemble":
        metadata = _ensemble_from_1(metadata)
    return tensors, metadata


def _renamed(name: str, among: Mapping[str, Tensor]) -> str:
    """Return the present name of a tensor: the standardisation became a module of its own."""
    start, dot, last = name.rpartition(".")
    of_an_aem = last in STANDARDISATION and f"{start}{dot}context_shift" in among
    return f"{start}{dot}standardisation.{last}" if of_an_aem else name


def _model_from_1(metadata: Metadata) -> Metadata:
    about = dict(metadata.get("about") or {})
    names = as_names(metadata["columns"], "columns")
    discrete = {entry["column"]: entry for entry in about.pop("discrete", [])}
    offsets = about.pop("offsets", {})
    unknown = [name for name in (*discrete, *offsets) if name not in names]
    if unknown:
        raise AemError(f"there is no column '{unknown[0]}'")
    transforms = [_normal_scores(lens, names) for lens in about.pop("lenses", [])]
    if offsets:
        transforms.append({"kind": "offset", "offsets": [offsets.get(n, 0.0) for n in names]})
    encoder = about.pop("stage_one", None)
    return {
        "format": metadata["format"],
        "kind": "model" if encoder is None else "prior",
        "columns": [_column(name, discrete.get(name)) for name in names],
        "transforms": transforms,
        "model": {"config": metadata["config"]},
        "about": about,
        **({} if encoder is None else {"encoder": encoder}),
    }


def _column(name: str, discrete: Mapping[str, Any] | None) -> Metadata:
    if discrete is None:
        return {"name": name, "kind": "number"}
    own = {key: value for key, value in discrete.items() if key != "column"}
    return {"name": name, "kind": "discrete", **own}


def _normal_scores(lens: Mapping[str, Any], names: list[str]) -> Metadata:
    if lens["column"] not in names:
        raise AemError(f"there is no column '{lens['column']}'")
    points = {key: lens[key] for key in ("values", "scores")}
    return {"kind": "normal_scores", "column": names.index(lens["column"]), **points}


def _ensemble_from_1(metadata: Metadata) -> Metadata:
    names = as_names(metadata["columns"], "columns")
    members = []
    for entry in metadata["members"]:
        order = entry["order"]
        transforms: list[Metadata] = []
        if entry.get("symmetry") is not None:
            transforms.append({"kind": "symmetry", "matrix": entry["symmetry"]})
        transforms.append({"kind": "permutation", "order": order})
        ordered = [names[place] for place in order]
        transforms += [_normal_scores(lens, ordered) for lens in entry.get("lenses", [])]
        members.append({"transforms": transforms, "model": {"config": entry["config"]}})
    return {
        "format": metadata["format"],
        "kind": "ensemble",
        "columns": [_column(name, None) for name in names],
        "members": members,
        "about": metadata.get("about") or {},
    }


# From each version to the next.
MIGRATIONS: dict[int, Callable[[Tensors, Metadata], tuple[Tensors, Metadata]]] = {1: _from_1}
