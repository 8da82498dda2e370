"""Everything a run needs to go on as if it had never stopped, in one safe file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from aem.base.files import header, read_tensors, write_tensors
from aem.base.provenance import device_name
from aem.base.settings import completed, from_mapping, refuse_other, to_mapping
from aem.errors import AemError

# Settings that may change between a run and its continuation without changing the result.
FREE = ("device", "checkpoint_seconds")


class Trainable(Protocol):
    """A module that can be put back: an AEM, or one that holds it (`nn.Module` says the rest)."""

    config: Any

    def state_dict(self) -> dict[str, Tensor]:
        """Weights and buffers."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Put them back."""

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """What follows from the data."""


class Optimiser(Protocol):
    """What keeps moments of gradients, numbered by parameter."""

    def state_dict(self) -> dict[str, Any]:
        """The moments."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Put them back."""


@dataclass
class TrainingState:
    """Where a training run stands.

    Parameters
    ----------
    step
        training steps that are done.
    seconds
        how long they took.
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
    """The part of a training configuration that decides its result."""
    return {k: v for k, v in to_mapping(config).items() if k not in FREE}


def save_checkpoint(
    path: Path,
    model: Trainable,
    average: Trainable,
    optimiser: Optimiser,
    config: Any,
    progress: TrainingState,
) -> None:
    """Write the state atomically: a kill leaves the previous checkpoint or this one."""
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
    """Put a run back where it was; refuse a checkpoint that belongs to another run."""
    tensors, metadata = read_tensors(path, "checkpoint")
    # Read as settings, so that those which came or went since have their defaults.
    if from_mapping(type(model.config), metadata["config"]) != model.config:
        raise AemError(f"{path} belongs to a model of other settings; choose another folder")
    refuse_other(path, completed(config, metadata["train"]), settings(config))

    def group(prefix: str) -> dict[str, Tensor]:
        start = f"{prefix}."
        return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}

    # Standardisation and frequencies follow from the training rows.
    for name, buffer in model.named_buffers():
        kept = tensors.get(f"model.{name}")
        if kept is not None and not torch.equal(kept, buffer.cpu()):
            raise AemError(f"{path} was made with other data; choose another folder")
    model.load_state_dict(group("model"))
    average.load_state_dict(group("average"))
    template = optimiser.state_dict()
    count = len(template["param_groups"][0]["params"])
    states = {i: group(f"optimiser.{i}") for i in range(count)}
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
        group("best"),
        saved["history"],
    )
