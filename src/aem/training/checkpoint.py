"""Checkpoints: all that a run needs to continue with the same bits, in one safetensors file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from aem.base.files import header, part_of_file, read_tensors, write_tensors
from aem.base.provenance import device_name
from aem.base.settings import completed, from_mapping, refuse_other, to_mapping
from aem.errors import AemError

# Settings that may change between a run and its continuation without changing the result.
FREE = ("device", "checkpoint_seconds")


class Trainable(Protocol):
    """A module whose state can be restored: an AEM, or a module that contains one."""

    config: Any

    def state_dict(self) -> dict[str, Tensor]:
        """Return weights and buffers."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Restore them."""

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Return what was computed from the data, such as the standardisation."""


class Optimiser(Protocol):
    """An optimiser whose state can be restored."""

    def state_dict(self) -> dict[str, Any]:
        """Return the moments of the gradients."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore them."""


@dataclass
class TrainingState:
    """The state of a training run.

    Parameters
    ----------
    step
        number of training steps so far.
    seconds
        seconds they took.
    best_score
        highest validation score so far, in nats per row.
    best_step
        the step that had it.
    best_weights
        averaged weights of that step, by name.
    history
        a mapping for each validation: step, losses and scores.
    """

    step: int = 0
    seconds: float = 0.0
    best_score: float = float("-inf")
    best_step: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict, repr=False)
    history: list[dict[str, float]] = field(default_factory=list, repr=False)


def settings(config: Any) -> dict[str, Any]:
    """Return the training settings that affect the result."""
    return {k: v for k, v in to_mapping(config).items() if k not in FREE}


def save_checkpoint(
    path: Path,
    model: Trainable,
    average: Trainable,
    optimiser: Optimiser,
    config: Any,
    progress: TrainingState,
) -> None:
    """Write a checkpoint atomically: a killed process leaves the previous one or this one."""
    tensors: dict[str, Tensor] = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    groups: list[tuple[str, dict[str, Tensor]]] = [
        ("model", model.state_dict()),
        ("average", average.state_dict()),
        ("best", progress.best_weights),
    ]
    for index, state in optimiser.state_dict()["state"].items():
        groups.append((f"optimiser.{index}", state))
    for prefix, group in groups:
        tensors.update({f"{prefix}.{name}": tensor for name, tensor in group.items()})
    metadata = {
        **header("checkpoint"),
        "config": to_mapping(model.config),
        "train": settings(config),
        "device": device_name(next(iter(model.state_dict().values())).device),
        "progress": {
            "step": progress.step,
            "seconds": progress.seconds,
            # JSON has no infinity: before the first validation there is no best score.
            "best_score": progress.best_score if progress.best_weights else None,
            "best_step": progress.best_step,
            "history": progress.history,
        },
    }
    write_tensors(path, tensors, metadata)


def load_checkpoint(
    path: Path,
    model: Trainable,
    average: Trainable,
    optimiser: Optimiser,
    config: Any,
) -> TrainingState:
    """Restore a run from its checkpoint; the checkpoint of another run is refused."""
    tensors, metadata = read_tensors(path, "checkpoint")
    # Read as settings, because settings may have been added or removed since.
    if from_mapping(type(model.config), metadata["config"]) != model.config:
        raise AemError(f"{path} belongs to a model of other settings; choose another folder")
    refuse_other(path, completed(config, metadata["train"]), settings(config))

    # Standardisation and frequencies follow from the training rows.
    for name, buffer in model.named_buffers():
        kept = tensors.get(f"model.{name}")
        if kept is not None and not torch.equal(kept, buffer.cpu()):
            raise AemError(f"{path} was made with other data; choose another folder")
    model.load_state_dict(part_of_file(tensors, "model"))
    average.load_state_dict(part_of_file(tensors, "average"))
    template = optimiser.state_dict()
    count = len(template["param_groups"][0]["params"])
    states = {i: part_of_file(tensors, f"optimiser.{i}") for i in range(count)}
    optimiser.load_state_dict({**template, "state": {i: s for i, s in states.items() if s}})
    torch.set_rng_state(tensors["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])
    saved = metadata["progress"]
    best = saved["best_score"]
    return TrainingState(
        saved["step"],
        saved["seconds"],
        float("-inf") if best is None else best,
        saved["best_step"],
        part_of_file(tensors, "best"),
        saved["history"],
    )
