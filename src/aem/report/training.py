"""The panel of training curves, from the model's file or the folder of its run."""

import json
from pathlib import Path
from typing import Any

from aem.base.files import MODELS_OF_RUNS, read_tensors
from aem.errors import AemError
from aem.report.numbers import short

MOST_POINTS = 400
SERIES = ("loss", "validation_log_prob", "validation_proposal_log_prob")


def training_record(about: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the history of the training and where it comes from; without one, why there is none.

    Parameters
    ----------
    about
        how the model came about.
    path
        the model's file; its folder may hold the files of a run.
    """
    network = about.get("network")
    if isinstance(network, dict) and network.get("history"):
        return {
            **_curves(network["history"]),
            "source": "the model file",
            "best_step": network.get("best_step"),
            "energy_from": network.get("energy_from"),
            "kept": network.get("kept", True),
            "mixture": _number(network.get("mixture_validation_log_prob")),
        }
    found = _beside(path)
    if found is not None:
        return found
    if "mixture" in about and network is None:
        why = (
            "No network was trained: the density is the Gaussian mixture alone, which is fitted "
            "without training steps. Small tables are left to it."
        )
    else:
        why = "Neither the model file nor the folder it lies in holds a history of its training."
    return {"missing": why}


def _beside(path: Path) -> dict[str, Any] | None:
    """Read the history from a run's folder: its metrics, or its checkpoint if it is not finished."""
    metrics, checkpoint = path.parent / "metrics.json", path.parent / "checkpoint.safetensors"
    # A folder may hold many models; only a run's own has this name.
    if path.name not in MODELS_OF_RUNS:
        return None
    try:
        if metrics.is_file():
            run = json.loads(metrics.read_text(encoding="utf-8"))
            training = run["training"]
            training = training[0] if isinstance(training, list) else training
            source, energy_from = metrics.name, _energy_from(run.get("config"))
        elif checkpoint.is_file():
            about = read_tensors(checkpoint, "checkpoint")[1]
            training, source = about["progress"], checkpoint.name
            energy_from = _energy_from({"model": about.get("config"), "train": about.get("train")})
        else:
            return None
        curves = _curves(training["history"])
    except (AemError, OSError, ValueError, KeyError, IndexError, TypeError):
        return None  # another program's file of that name
    return {
        **curves,
        "source": source,
        "best_step": training.get("best_step"),
        "energy_from": training.get("energy_from", energy_from),
        "kept": True,
    }


def _energy_from(config: Any) -> int | None:
    """Return the step at which the warm-up ends, or None if the proposal has no parameters."""
    try:
        learns = config["model"]["proposal"] != "uniform"
        return int(config["train"]["warmup"]) if learns else None
    except (KeyError, TypeError, ValueError):
        return None


def _curves(history: list[dict[str, float]]) -> dict[str, Any]:
    every = -(-len(history) // MOST_POINTS)
    points = history[::every]
    if points[-1] is not history[-1]:
        points = [*points, history[-1]]
    return {
        "step": [int(point["step"]) for point in points],
        **{name: [_number(point.get(name)) for point in points] for name in SERIES},
    }


def _number(value: Any) -> float | None:
    return short(float(value), 7) if isinstance(value, int | float) else None
