"""Reading and writing of files: safetensors with metadata in JSON, written completely or not at all.

The metadata has the format, its version and the kind of content. Files of earlier versions are
converted when they are read (`aem.base.migrations`).
"""

import hashlib
import json
import math
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from aem.base.migrations import to_current
from aem.errors import AemError

FORMAT = "aem"
FORMAT_VERSION = 2
# How the file with the model of a run is called, now and before version 0.2.
MODELS_OF_RUNS = ("model.aem", "model.safetensors")
# What numbers, lists and text of the wrong kind or size raise where they are used.
FAULTS = (AttributeError, IndexError, OverflowError, RuntimeError, TypeError, ValueError)


def model_of_run(folder: Path) -> Path:
    """Return the path of a run's model, which exists already or will be written.

    Versions before 0.2 called it `model.safetensors`; a folder that has such a file keeps it.
    """
    present, earlier = (folder / name for name in MODELS_OF_RUNS)
    return earlier if earlier.exists() and not present.exists() else present


def make_folder(path: Path) -> None:
    """Create a folder unless it exists, or say why this is impossible.

    Parameters
    ----------
    path
        the folder; those above it are made, too.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise AemError(f"cannot write to {path}: a file is in the way") from error
    except OSError as error:
        raise AemError(f"cannot write to {path}: {error.strerror}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, so that nobody can read half of it.

    Parameters
    ----------
    path
        the file; its folder is made if need be.
    content
        all that the file is to hold.
    """
    make_folder(path.parent)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".aem-")
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


def finite(value: Any) -> Any:
    """Return a value as JSON can hold it: what is not finite becomes None.

    Parameters
    ----------
    value
        plain values, which may be nested in dictionaries and lists.
    """
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: object) -> None:
    """Write indented JSON atomically; NaN and infinities are refused rather than written.

    Parameters
    ----------
    path
        the file, written whole or not at all.
    value
        plain values, which may be nested.
    """
    write_atomically(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file of results, or say that it is damaged.

    Parameters
    ----------
    path
        a JSON file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AemError(f"{path} is not a result file, or a damaged one") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and metadata as one safetensors file.

    Parameters
    ----------
    path
        the file, written whole or not at all.
    tensors
        tensors by name; they may share memory.
    metadata
        values by name, each of which JSON can hold.
    """
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    header = {key: json.dumps(value) for key, value in metadata.items()}
    write_atomically(path, save(plain, metadata=header))


def read_tensors(path: Path, *kinds: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of one of several kinds, and convert it to the present format.

    Parameters
    ----------
    path
        a safetensors file.
    kinds
        what it may hold, such as "model"; errors name the first.

    Returns
    -------
    tensors : dict of tensor
        the tensors by name.
    metadata : dict
        what the file says about itself, by name.
    """
    kind = kinds[0]
    if not _is_readable(path):
        raise AemError(f"there is no {kind} file at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = {key: json.loads(value) for key, value in header.items()}
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise AemError(f"{path} is not a {kind} file, or a damaged one") from error
    if metadata.get("format") != FORMAT or not isinstance(metadata.get("kind"), str):
        raise AemError(f"{path} is not an aem {kind} file")
    version = metadata.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise AemError(
            f"{path} has format version {version}; this aem reads up to {FORMAT_VERSION}: update aem"
        )
    with blaming_file(path, metadata["kind"]):
        tensors, metadata = to_current(tensors, metadata, version)
    if metadata["kind"] not in kinds:
        raise AemError(f"{path} is not an aem {kind} file: it holds {_named(metadata['kind'])}")
    return tensors, metadata


def _named(kind: str) -> str:
    """Return a kind with its article, such as 'an ensemble'."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" if kind else "nothing known"


def _is_readable(path: Path) -> bool:
    """Return whether there is a file; one without permission to read is an error."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        path.open("rb").close()
        return True
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        raise AemError(f"cannot read {path}: {error.strerror}") from error


@contextmanager
def blaming_file(path: Path, kind: str) -> Iterator[None]:
    """Turn errors in building a model from a file into an `AemError` that names the file.

    Parameters
    ----------
    path
        the file that was read.
    kind
        what it should hold, for the message.
    """
    incomplete = f"{path} does not hold a complete {kind}"
    try:
        yield
    except AemError as error:
        raise AemError(f"{incomplete}: {error}") from error
    except KeyError as error:
        raise AemError(f"{incomplete}: {error} is missing") from error
    except FAULTS as error:
        reason = " ".join(str(error).split())[:200]  # torch lists what is missing, line by line
        raise AemError(f"{incomplete}: {reason}") from error


def tensor_digest(tensors: Mapping[str, Tensor], *further: Any) -> str:
    """Return the SHA-256 of tensors, by name and in their order, and of further plain values.

    Parameters
    ----------
    tensors
        tensors by name, on any device.
    further
        values that JSON can hold.
    """
    state = hashlib.sha256("".join(map(json.dumps, further)).encode())
    for name, tensor in tensors.items():
        state.update(name.encode())
        state.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return state.hexdigest()


def part_of_file(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Return the tensors of one part of a file, without the prefix of their names.

    Parameters
    ----------
    tensors
        all tensors of the file; those of a part are named "part.name".
    part
        name of the part.
    """
    start = f"{part}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def as_mapping(values: Any, name: str) -> dict[str, Any]:
    """Check that a value from a file is a mapping, and return it.

    Parameters
    ----------
    values
        what the file holds.
    name
        how the message calls it.
    """
    if not isinstance(values, dict):
        raise AemError(f"'{name}' is not a table of keys")
    return values


def header(kind: str) -> dict[str, Any]:
    """Return the metadata that every file carries.

    Parameters
    ----------
    kind
        what the file holds, such as "model".
    """
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "kind": kind}


def check_writable(folder: Path) -> None:
    """Check before a long training that results can be written.

    Parameters
    ----------
    folder
        where the result will go; it need not exist yet.
    """
    probe = folder / ".writable"
    existed = folder.exists()
    write_atomically(probe, b"")
    probe.unlink()
    if not existed:
        folder.rmdir()
