"""Evaluations that can be continued: scores are kept in files, and a second run computes the rest.

Each file has a fingerprint of everything that its scores depend on. A file with another fingerprint
is overwritten.
"""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.base.files import header, read_tensors, write_json, write_tensors
from aem.base.progress import Report
from aem.errors import AemError

Columns = dict[str, Tensor]  # numbers per row, float64, on the CPU
Fingerprint = dict[str, Any]

SECONDS_BETWEEN_WRITES = 10.0
SECONDS_A_BLOCK = 0.5  # blocks that take less time may grow


def digest_of_rows(rows: NDArray[np.floating]) -> str:
    """Return a fingerprint of rows, such as those of a split.

    Parameters
    ----------
    rows
        the rows; their type and order count.
    """
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()


def remember(
    path: Path, fingerprint: Fingerprint, compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Return a result from its file, or compute and store it.

    Parameters
    ----------
    path
        the JSON file.
    fingerprint
        all that the result depends on; a file with another one is written anew.
    compute
        the function that computes the result, as JSON can hold it.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["fingerprint"] == fingerprint:
            return dict(kept["result"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # missing or of another evaluation: compute it again
    result = compute()
    write_json(path, {"fingerprint": fingerprint, "result": result})
    return result


def accumulate(
    path: Path,
    fingerprint: Fingerprint,
    rows: Float[Tensor, "B D"],
    compute: Callable[[Float[Tensor, "N D"], int], Columns],
    *,
    block: int,
    grows: bool = False,
    seconds: float,
    report: Report,
    what: str,
) -> Columns:
    """Score rows block by block until the last one or the time limit, but at least one block.

    Blocks always begin at multiples of `block`, so that their random numbers do not depend on where
    a run was stopped.

    Parameters
    ----------
    path
        the file that keeps the scores between runs.
    fingerprint
        all that the scores depend on; a file with another one is written anew.
    rows
        all rows to score.
    compute
        a function of some rows and the number of the first that returns columns of scores.
    block
        how many rows are scored at a time.
    grows
        whether blocks may grow, to have fewer reports; only for scores without random numbers.
    seconds
        time limit; zero for none.
    report
        called as `report(what, done, total)` while the work goes on.
    what
        name of the task in reports.
    """
    parts = _read(path, fingerprint)
    done = len(next(iter(parts[0].values()))) if parts else 0
    started = written = time.monotonic()
    while done < len(rows):
        began = time.monotonic()
        first = done if grows else done - done % block
        fresh = compute(rows[first : first + block], first)
        # The last block of an earlier, smaller request was cut short: only the rest is new.
        parts.append({k: v[done - first :].double().cpu() for k, v in fresh.items()})
        done = first + len(next(iter(fresh.values())))
        report(what, done, len(rows))
        now = time.monotonic()
        if grows and now - began < SECONDS_A_BLOCK:
            block *= 2
        late = bool(seconds) and now - started > seconds
        if late or done == len(rows) or now - written > SECONDS_BETWEEN_WRITES:
            parts = [_joined(parts)]
            write_tensors(path, parts[0], {**header("scores"), "fingerprint": fingerprint})
            written = now
        if late:
            break
    return {k: v[: len(rows)] for k, v in _joined(parts).items()}


def _joined(parts: list[Columns]) -> Columns:
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def _read(path: Path, fingerprint: Fingerprint) -> list[Columns]:
    try:
        columns, metadata = read_tensors(path, "scores")
    except AemError:
        return []
    return [columns] if metadata.get("fingerprint") == fingerprint and columns else []
