"""A model is one safe file: safetensors with JSON metadata, written whole or not at all."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from aem.config import ModelConfig, from_mapping, to_mapping
from aem.errors import AemError
from aem.model import AEM

FORMAT = "aem"
FORMAT_VERSION = 1
TREATED = {  # what a fit tells about columns that a model does not see as they are
    "offsets": "columns far from zero",
    "lenses": "columns seen through a lens",
}


class Described(Protocol):
    """What a file says about the model it holds."""

    config: Any
    columns: tuple[str, ...]


def make_folder(path: Path) -> None:
    """Make sure that a folder exists, or say why it cannot."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise AemError(f"cannot write to {path}: a file is in the way") from error
    except OSError as error:
        raise AemError(f"cannot write to {path}: {error.strerror}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content in one step, so that nobody ever reads half of it."""
    make_folder(path.parent)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise AemError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)  # mkstemp is private to the user; a result should not be
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise AemError(f"cannot write {path}: {error.strerror}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: object) -> None:
    """Write indented JSON atomically; NaN and infinities are refused rather than written."""
    write_atomically(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and JSON-able metadata as one safetensors file."""
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    header = {key: json.dumps(value) for key, value in metadata.items()}
    write_atomically(path, save(plain, metadata=header))


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file written by `write_tensors`, or say why it cannot be one."""
    if not path.is_file():
        raise AemError(f"there is no {kind} file at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = {key: json.loads(value) for key, value in header.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise AemError(f"{path} is not a {kind} file, or a damaged one") from error
    if metadata.get("format") != FORMAT or metadata.get("kind") != kind:
        raise AemError(f"{path} is not an aem {kind} file")
    version = metadata.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise AemError(
            f"{path} has format version {version}; this aem reads up to {FORMAT_VERSION}: update aem"
        )
    return tensors, metadata


def header(kind: str, model: Described) -> dict[str, Any]:
    """The metadata every file of a model carries."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "config": to_mapping(model.config),
        "columns": list(model.columns),
    }


def save_model(model: AEM, path: str | Path, **about: Any) -> None:
    """Save a model; `about` may hold anything JSON can, for instance how it was trained."""
    write_tensors(Path(path), model.state_dict(), {**header("model", model), "about": about})


def load_model(
    path: str | Path, device: str | torch.device = "cpu", *, as_table: bool = False
) -> AEM:
    """Load a model in evaluation mode. No code in the file is ever run.

    Some models do not see the values themselves, but something that only a `TableModel` knows.
    """
    path = Path(path)
    tensors, metadata = read_tensors(path, "model")
    if not as_table:
        about = metadata.get("about") or {}
        for key, what in TREATED.items():
            if about.get(key):
                raise AemError(
                    f"{path} has {what}, which only aem score, sample and report can treat"
                )
    try:
        config = from_mapping(ModelConfig, metadata["config"])
        model = AEM(config, columns=metadata["columns"]).to(tensors["shift"].dtype)
        model.load_state_dict(tensors)
    except (KeyError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]  # torch lists what is missing, line by line
        raise AemError(f"{path} does not hold a complete model: {reason}") from error
    return model.to(device).eval()


def model_information(path: str | Path) -> dict[str, Any]:
    """What a model file says about itself."""
    return read_tensors(Path(path), "model")[1]
