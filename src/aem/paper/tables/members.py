"""Training the members of a run: each in its folder, resumed if it was stopped, once if it was not."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aem.base.devices import choose_device
from aem.base.files import make_folder, read_tensors, write_json
from aem.base.provenance import device_name
from aem.base.settings import from_mapping, to_mapping
from aem.config import TrainConfig
from aem.data.splits import TableSplits
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.ensemble import Member
from aem.model.files import load_model, model_information, read_lenses, save_model
from aem.model.transforms.normal_scores import lenses_from
from aem.paper.tables.config import TableConfig
from aem.paper.tables.grids import spread
from aem.paper.tables.symmetries import symmetrised
from aem.tables.fit.automatic import fit_table
from aem.training.checkpoint import settings as training_settings
from aem.training.loop import fit


@dataclass(frozen=True)
class Trained:
    """A member, and how it came about."""

    member: Member
    training: dict[str, Any]  # steps, seconds, best_step, history


def train_member(
    config: TableConfig,
    preset: str,
    place: int,
    order: tuple[int, ...],
    splits: TableSplits,
    folder: Path | None,
    *,
    evaluate_only: bool = False,
    quiet: bool = False,
) -> Trained:
    """Train one member, or go on, or read it if it is finished; without a folder leave no trace."""
    train = replace(config.train, seed=config.train.seed + place)
    identity = _identity(replace(config, train=train), order)
    device = choose_device(train.device)
    file = None if folder is None else folder / "model.safetensors"
    if file is not None and file.exists():
        about = model_information(file).get("about", {})
        _refuse_other(file, about.get("run"), identity)
        model = load_model(file, device, as_table=True)
        lenses = read_lenses(about.get("lenses", []), model.columns)
        return Trained(Member(model, order, lenses=lenses), about["training"])
    about = {"task": config.task.name, "preset": preset, "run": identity}
    if folder is not None:
        _settle(folder / "run.json", identity, evaluate_only=evaluate_only)
    if config.task.spread:
        splits = spread(splits, train.seed)
    if config.ensemble.automatic:
        if evaluate_only:
            raise _nothing_trained(folder)
        return _fit_by_itself(splits, order, train, file, about, quiet=quiet)
    columns = [splits.columns[i] for i in order]
    torch.manual_seed(train.seed)
    model = AEM.for_data(config.model, splits.train[:, list(order)], columns=columns)
    if evaluate_only and folder is not None:
        checkpoint = folder / "checkpoint.safetensors"
        return Trained(Member(model, order), _read_best(model.to(device), checkpoint, identity))
    # The images are the rows seen from another side: what fits the rows fits them.
    rows = symmetrised(splits, config.task.symmetries)[:, list(order)]
    progress = fit(
        model, rows, splits.validation[:, list(order)], train, folder=folder, quiet=quiet
    )
    training = {
        "steps": progress.step,
        "seconds": round(progress.seconds, 2),
        "device": device_name(device),
        "best_step": progress.best_step,
        "best_validation_log_prob": progress.best_score,
        "history": progress.history,
    }
    if file is not None:
        save_model(model, file, **about, training=training)
    return Trained(Member(model, order), training)


def _fit_by_itself(
    splits: TableSplits,
    order: tuple[int, ...],
    train: TrainConfig,
    file: Path | None,
    about: dict[str, Any],
    *,
    quiet: bool,
) -> Trained:
    """A member that finds its own settings, as `aem fit` would; validation rows judge."""
    rows = np.concatenate((splits.train, splits.validation)).astype(np.float64)
    judges = np.arange(len(rows)) >= len(splits.train)
    fitted = fit_table(
        rows[:, list(order)],
        [splits.columns[i] for i in order],
        judges=judges,
        seed=train.seed,
        device=train.device,
        quiet=quiet,
    )
    for treated in ("discrete", "offsets"):
        if fitted.about.get(treated):
            raise AemError(
                f"the table {splits.name} has columns that an automatic member would treat "
                f"({treated}), which a mixture of members cannot"
            )
    network = fitted.about["network"] or {}
    training = {
        "steps": network.get("steps", 0),
        "seconds": network.get("seconds", 0.0),
        "device": device_name(fitted.model.shift.device),
        "best_step": network.get("best_step", 0),
        "best_validation_log_prob": network.get("validation_log_prob"),
        "mixture": fitted.about["mixture"],
        "history": network.get("history", []),
        "energy_from": network.get("energy_from"),
    }
    lenses = fitted.about.get("lenses", [])
    if file is not None:
        make_folder(file.parent)
        save_model(fitted.model, file, **about, training=training, lenses=lenses)
    return Trained(Member(fitted.model, order, lenses=lenses_from(lenses)), training)


def _identity(config: TableConfig, order: tuple[int, ...]) -> dict[str, Any]:
    """All that decides the weights, as JSON returns it."""
    task = to_mapping(config.task)
    task.pop("test_rows")
    identity = {
        **{f"task.{k}": v for k, v in task.items()},
        **{f"model.{k}": v for k, v in to_mapping(config.model).items()},
        **{f"train.{k}": v for k, v in training_settings(config.train).items()},
        "order": order,
        "ensemble.automatic": config.ensemble.automatic,
    }
    return dict(json.loads(json.dumps(identity)))


def _settle(path: Path, identity: dict[str, Any], *, evaluate_only: bool) -> None:
    """What a folder's run is, written before it begins: one that goes on must be the same."""
    if path.exists():
        try:
            _refuse_other(path, json.loads(path.read_text(encoding="utf-8")), identity)
        except (OSError, ValueError) as error:
            raise AemError(f"{path} cannot be read; choose another folder") from error
    elif not evaluate_only:
        write_json(path, identity)


def _refuse_other(path: Path, found: Any, wanted: dict[str, Any]) -> None:
    if not isinstance(found, dict):
        raise AemError(f"{path} does not say what it was trained on; choose another folder")
    for key, value in wanted.items():
        if found.get(key) != value:
            raise AemError(
                f"{path} was made with {key} = {found.get(key)}, this run asks for {value}; "
                "choose another folder or the same settings"
            )


def _nothing_trained(folder: Path | None) -> AemError:
    return AemError(f"there is nothing to evaluate in {folder}: no model was trained")


def _read_best(model: AEM, checkpoint: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """The best weights so far of a run that is not finished."""
    if not checkpoint.exists():
        raise _nothing_trained(checkpoint.parent)
    tensors, metadata = read_tensors(checkpoint, "checkpoint")
    wanted = {k: v for k, v in identity.items() if k.startswith("train.")}
    _refuse_other(checkpoint, {f"train.{k}": v for k, v in metadata["train"].items()}, wanted)
    if from_mapping(type(model.config), metadata["config"]) != model.config:
        raise AemError(f"{checkpoint} belongs to a model of other settings")
    best = {k.removeprefix("best."): v for k, v in tensors.items() if k.startswith("best.")}
    if not best:
        raise AemError(f"{checkpoint} is from before the first validation: train on")
    model.load_state_dict(best)
    model.eval()
    progress = metadata["progress"]
    return {
        "steps": progress["step"],
        "unfinished": True,
        "seconds": round(progress["seconds"], 2),
        "device": metadata.get("device"),  # may be another than the one that scores
        "best_step": progress["best_step"],
        "best_validation_log_prob": progress["best_score"],
        "history": progress["history"],
    }
