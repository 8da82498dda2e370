"""The panel on how the model and the report were made."""

import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aem import __version__
from aem.base.settings import to_mapping
from aem.model.transforms.normal_scores import NormalScores
from aem.report.limits import Limits
from aem.report.numbers import short
from aem.tables.model import TableModel

NamedTexts = list[tuple[str, str]]

ORIGIN = {
    "command": "command",
    "rows": "rows fitted on",
    "seed": "seed",
    "device": "device",
    "seconds": "seconds",
    "torch": "torch",
    "commit": "commit of aem",
    "task": "task",
    "preset": "preset",
}
MIXTURE = {
    "components": "Gaussians",
    "starts": "pooled over starts",
    "prior_rows": "rows the shared shape counts for",
    "score": "held-out log density, standardised columns",
}


def making_record(
    table: TableModel, path: Path, data: str, limits: Limits, seed: int
) -> dict[str, Any]:
    """Return four tables: the model's origin, its settings, its columns, this report.

    Parameters
    ----------
    table
        the model that is reported on.
    path
        the model's file, whose name is shown.
    data
        what the page calls the rows.
    limits
        how many rows each part of the report looked at.
    seed
        seed of the draws.
    """
    about = table.about
    network = about.get("network") or {}
    return {
        "origin": _origin(table, path),
        "settings": _plain(to_mapping(table.model.config), leave_out=("lattice", "bounds")),
        "training": _plain(network.get("train", {})),
        "columns": _columns(table),
        "report": [
            ("data", data),
            ("aem", __version__),
            ("torch", torch.__version__),
            ("numpy", np.__version__),
            ("python", platform.python_version()),
            ("rows screened by an estimate", f"{limits.screened:,}"),
            ("rows scored", f"{limits.scored:,}"),
            ("rows of the calibration", f"{limits.calibrated:,}"),
            ("rows sampled", f"{limits.sampled:,}"),
            ("seed of the draws", str(seed)),
        ],
    }


def _origin(table: TableModel, path: Path) -> NamedTexts:
    about, rows = table.about, [("model file", path.name)]
    if table.left_out:
        rows.append(("columns left out", _text(table.left_out)))
    for key, name in ORIGIN.items():
        if about.get(key) not in (None, [], ""):
            rows.append((name, _text(about[key])))
    mixture = about.get("mixture")
    if isinstance(mixture, dict):
        rows += [(f"mixture: {v}", _text(mixture[k])) for k, v in MIXTURE.items() if k in mixture]
    network = about.get("network")
    if isinstance(network, dict):
        rows.append(("training steps", _text(network.get("steps"))))
        kept = "yes" if network.get("kept") else "no: the mixture alone"
        if network.get("won") == "proposal":
            kept = "the proposal, without energies"
        rows.append(("networks kept", kept))
    return rows


def _columns(table: TableModel) -> list[dict[str, Any]]:
    discrete = {column.column: column for column in table.discrete}
    units = table.exact.standardisation
    transformed = {p.column for p in table.transform.parts if isinstance(p, NormalScores)}
    records = []
    for d, name in enumerate(table.columns):
        own = discrete.get(name)
        treatment, unit = "continuous", ""
        if own is not None:
            treatment = f"discrete ({own.why}): dequantised in steps of {own.step:g}"
        elif d in transformed:
            treatment = "heavy-tailed: transformed to about the normal scores of its ranks"
            unit = " (scores)"
        mean = float(units.shift[d])
        if not unit:
            mean = float(table.column(d).inverse(np.array(mean)))
        records.append(
            {
                "column": d,
                "mean": f"{short(mean)}{unit}",
                "deviation": f"{short(float(units.deviations[d]))}{unit}",
                "treatment": treatment,
            }
        )
    return records


def _plain(settings: dict[str, Any], leave_out: tuple[str, ...] = ()) -> NamedTexts:
    return [(key, _text(value)) for key, value in settings.items() if key not in leave_out]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(v) for v in value) or "none"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return "none" if value is None or value == "" else str(value)
