"""Measurements that several processes make in pieces, which are then combined.

A piece is one JSON file with the measurements, as nested dictionaries, and their provenance. Pieces
are combined only if they come from the same code, settings, seed and kind of machine.
"""

import argparse
import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from aem.base.files import write_json
from aem.base.provenance import command_line, provenance
from aem.errors import AemError
from aem.tables.fit.settings import FitSettings

CPUINFO = Path("/proc/cpuinfo")
OWN = ("command", "seconds")  # a piece's alone; all else that tells its origin is common


def arguments_for(description: str, methods: Collection[str], out: Path) -> argparse.ArgumentParser:
    """Return the arguments of a measurement of some methods that may be made in pieces."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--methods", nargs="*", default=list(methods), choices=list(methods))
    parser.add_argument("--pieces", type=Path, help="write pieces into this folder instead")
    parser.add_argument("--merge", type=Path, help="put together the pieces of this folder")
    parser.add_argument("--out", type=Path, default=out)
    return parser


def piece(found: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Describe what was found, its provenance and the time it took."""
    return {"found": found, "origin": {**origin(), "seconds": round(seconds, 1)}}


@cache
def origin() -> dict[str, Any]:
    """Return the provenance of the pieces of this process, computed once."""
    return {**provenance(FitSettings(), 0, torch.device("cpu")), "processor": processor()}


def processor() -> str | None:
    """Return the name of the CPU, if the system knows it."""
    if not CPUINFO.is_file():
        return None
    named = re.search(r"model name\s*: (.*)", CPUINFO.read_text(encoding="utf-8"))
    return named[1] if named else None


def write_piece(folder: Path, name: str, made: Mapping[str, Any]) -> None:
    """Write one piece."""
    slug = re.sub(r"[^\w.+-]", "-", name)
    write_json(folder / f"{slug}.json", made)


def merge(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """Combine all pieces with their common provenance, their commands and their seconds."""
    if not pieces:
        raise AemError("there are no pieces to put together")
    origins = [piece["origin"] for piece in pieces]
    common = {k: v for k, v in origins[0].items() if k not in OWN}
    for other in origins[1:]:
        differs = next((k for k, v in common.items() if other.get(k) != v), None)
        if differs is not None:
            raise AemError(
                f"pieces differ in their {differs}: {common[differs]} and {other[differs]}"
            )
    found: dict[str, Any] = {}
    for piece in pieces:
        _add(found, piece["found"])
    return {
        **found,
        **common,
        "command": command_line() if len(origins) > 1 else origins[0]["command"],
        "pieces": [{k: o[k] for k in OWN} for o in origins],
        "seconds": round(sum(o["seconds"] for o in origins), 1),
    }


def read_pieces(folder: Path) -> list[dict[str, Any]]:
    """Read all pieces of a folder, in the order of their names."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def _add(whole: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict):
            _add(whole.setdefault(key, {}), value)
        elif whole.setdefault(key, value) != value:
            raise AemError(f"two pieces say different things about {key}")
