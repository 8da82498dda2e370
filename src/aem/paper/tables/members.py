"""Training of the members of a run, each in a folder of its own, continued if it was stopped."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aem.base.devices import choose_device
from aem.base.files import make_folder, model_of_run, part_of_file, read_tensors, write_json
from aem.base.provenance import device_name
from aem.base.settings import completed, from_mapping, refuse_other, to_mapping
from aem.config import TrainConfig
from aem.data.splits import TableSplits
from aem.errors import AemError
from aem.model.aem import AEM
from aem.paper.tables.config import TableConfig
from aem.paper.tables.grids import spread_over_cells
from aem.paper.tables.symmetries import symmetrised
from aem.tables.files import load_single
from aem.tables.fit.automatic import fit_table
from aem.tables.model import TableModel
from aem.training.checkpoint import settings as training_settings
from aem.training.loop import fit


@dataclass(frozen=True)
class TrainedMember:
    """A member of a run, and the record of its training.

    Parameters
    ----------
    member
        the model, of the table's columns in their own order.
    training
        steps, seconds, best_step, history.
    """

    member: TableModel
    training: dict[str, Any]


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
) -> TrainedMember:
    """Train a member, continue its training, or read it if it is finished.

    Parameters
    ----------
    config
        all settings of the run.
    preset
        the name that the results are recorded under.
    place
        number of the member, which its seed follows from.
    order
        the order in which the member reads the columns.
    splits
        the table, in its own order of columns.
    folder
        folder for checkpoints and the model; without one no files are written.
    evaluate_only
        whether to train nothing and read what there is.
    quiet
        whether to show no progress.
    """
    train = replace(config.train, seed=config.train.seed + place)
    identity = _identity(replace(config, train=train), order)
    device = choose_device(train.device)
    file = None if folder is None else model_of_run(folder)
    if file is not None and file.exists():
        kept = load_single(file, device)
        _refuse_other(file, kept.about.get("run"), identity)
        return TrainedMember(kept.in_order(splits.columns), kept.about["training"])
    about = {"task": config.task.name, "preset": preset, "run": identity}
    if folder is not None:
        _settle(folder / "run.json", identity, evaluate_only=evaluate_only)
    if config.task.spread:
        splits = spread_over_cells(splits, train.seed)
    if config.ensemble.automatic:
        if evaluate_only:
            raise _nothing_trained(folder)
        return _fit_by_itself(splits, order, train, file, about, quiet=quiet)
    columns = [splits.columns[i] for i in order]
    torch.manual_seed(train.seed)
    model = AEM.for_data(config.model, splits.train[:, list(order)], columns=columns)
    if evaluate_only and folder is not None:
        checkpoint = folder / "checkpoint.safetensors"
        training = _read_best(model.to(device), checkpoint, identity)
        return TrainedMember(TableModel(model).in_order(splits.columns), training)
    # The images are the rows seen from another side: what fits the rows fits them.
    rows = symmetrised(splits, config.task.symmetries)[:, list(order)]
    progress = fit(
        model, rows, splits.validation[:, list(order)], train, folder=folder, quiet=quiet
    )
    training = _course(vars(progress), device_name(device))
    table = TableModel(model, about={**about, "training": training})
    if file is not None:
        table.save(file)
    return TrainedMember(table.in_order(splits.columns), training)


def _fit_by_itself(
    splits: TableSplits,
    order: tuple[int, ...],
    train: TrainConfig,
    file: Path | None,
    about: dict[str, Any],
    *,
    quiet: bool,
) -> TrainedMember:
    """Fit a member automatically, as `aem fit`, with the validation rows of the data set."""
    rows = np.concatenate((splits.train, splits.validation)).astype(np.float64)
    is_validation = np.arange(len(rows)) >= len(splits.train)
    fitted = fit_table(
        rows[:, list(order)],
        [splits.columns[i] for i in order],
        is_validation=is_validation,
        seed=train.seed,
        device=train.device,
        quiet=quiet,
    )
    table = fitted.table
    network = table.about["network"] or {}
    training = {
        "steps": network.get("steps", 0),
        "seconds": network.get("seconds", 0.0),
        "device": device_name(table.model.device),
        "best_step": network.get("best_step", 0),
        "best_validation_log_prob": network.get("validation_log_prob"),
        "mixture": table.about["mixture"],
        "history": network.get("history", []),
        "energy_from": network.get("energy_from"),
    }
    table.about = {**about, "training": training}
    if file is not None:
        make_folder(file.parent)
        table.save(file)
    return TrainedMember(table.in_order(splits.columns), training)


def _identity(config: TableConfig, order: tuple[int, ...]) -> dict[str, Any]:
    """Return all settings that affect the weights, as JSON returns them."""
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
    """Write the settings of a run before it begins; if it continues, they must be the same."""
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
    # Settings that came after the file were then what they are without being mentioned.
    earlier = {f"train.{k}": v for k, v in completed(TrainConfig(), {}).items()}
    refuse_other(path, {**_identity(TableConfig(), ()), **earlier, **found}, wanted)


def _nothing_trained(folder: Path | None) -> AemError:
    return AemError(f"there is nothing to evaluate in {folder}: no model was trained")


def _read_best(model: AEM, checkpoint: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Read the best weights so far of an unfinished run."""
    if not checkpoint.exists():
        raise _nothing_trained(checkpoint.parent)
    tensors, metadata = read_tensors(checkpoint, "checkpoint")
    wanted = {k: v for k, v in identity.items() if k.startswith("train.")}
    _refuse_other(checkpoint, {f"train.{k}": v for k, v in metadata["train"].items()}, wanted)
    if from_mapping(type(model.config), metadata["config"]) != model.config:
        raise AemError(f"{checkpoint} belongs to a model of other settings")
    best = part_of_file(tensors, "best")
    if not best:
        raise AemError(f"{checkpoint} is from before the first validation: continue the training")
    model.load_state_dict(best)
    model.eval()
    # The device may be another than the one that scores.
    return {**_course(metadata["progress"], metadata.get("device")), "unfinished": True}


def _course(progress: Mapping[str, Any], device: str | None) -> dict[str, Any]:
    """Return the record of a training."""
    return {
        "steps": progress["step"],
        "seconds": round(progress["seconds"], 2),
        "device": device,
        "best_step": progress["best_step"],
        "best_validation_log_prob": progress["best_score"],
        "history": progress["history"],
    }
