"""The paper's plane experiments: train, evaluate against the exact density, draw the figure row."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aem.base.devices import choose_device
from aem.base.files import check_writable, model_of_run, write_atomically, write_json
from aem.base.provenance import provenance
from aem.base.settings import to_toml
from aem.config import RESAMPLED
from aem.data.synthetic import PlaneTask
from aem.data.tasks import plane_task
from aem.model.aem import AEM
from aem.model.distribution import Method
from aem.model.files import save_model
from aem.paper.plane.config import ExperimentConfig
from aem.paper.plane.density import PlaneDensity, estimated_density, plane_density
from aem.paper.plane.evaluate import MEMORY, evaluate_plane
from aem.paper.plane.picture import Picture, draw_row
from aem.paper.plots import save_figure
from aem.training.checkpoint import TrainingState
from aem.training.loop import fit

PICTURE_SAMPLES = {"cpu": 100_000, "cuda": 1_000_000}


@dataclass(frozen=True)
class PlaneRun:
    """The results of a run in the plane.

    Parameters
    ----------
    model
        the trained model.
    metrics
        what metrics.json holds.
    folder
        folder with all files of the run.
    """

    model: AEM
    metrics: dict[str, Any]
    folder: Path


def run_plane(
    config: ExperimentConfig, preset: str, folder: Path, *, quiet: bool = False
) -> PlaneRun:
    """Train and evaluate one plane task, and write metrics, model, settings and figure.

    Parameters
    ----------
    config
        all settings of the run.
    preset
        the name that the results are recorded under.
    folder
        folder of the run; a stopped run in it is continued.
    quiet
        whether to show no progress.
    """
    task = plane_task(config.task.name, config.task.image or None)
    device = choose_device(config.train.device)
    check_writable(folder)
    seed = config.train.seed
    # Splits must not overlap: each has its own stream of the generator.
    train, validation, test = (
        task.sample(rows, 3 * seed + offset)
        for offset, rows in enumerate(
            (config.task.train_rows, config.task.validation_rows, config.task.test_rows)
        )
    )
    torch.manual_seed(seed)
    model = AEM.for_data(config.model, train)
    write_atomically(folder / "config.toml", to_toml(config).encode())
    progress = fit(model, train, validation, config.train, folder=folder, quiet=quiet)
    save_model(model, model_of_run(folder), task=task.name, preset=preset)
    metrics = {
        "task": task.name,
        "preset": preset,
        **provenance(config, seed, device),
        "steps": progress.step,
        "seconds": round(progress.seconds, 2),
        **evaluate_plane(model, task, test, device, config.evaluate),
        "training": training_summary(progress),
    }
    write_json(folder / "metrics.json", metrics)
    count = config.evaluate.samples or PICTURE_SAMPLES[device.type]
    # A literal energy is drawn from as the paper does: exactly, it would cost a CDF a value.
    method: Method = "exact" if config.model.energy == "relative" else "resample"
    drawn = {
        "data": train[:1_000_000],
        "proposal_samples": _draw(model, count, "proposal"),
        "samples": _draw(model, count, method, config.evaluate.proposals),
    }
    picture = Picture.of(task, _density(model, task, config), drawn)
    picture.save(folder / "density.npz")
    save_figure(draw_row(picture, metrics), folder / "figure.png")
    return PlaneRun(model, metrics, folder)


def training_summary(progress: TrainingState) -> dict[str, Any]:
    """Return the training curve, and which step was kept.

    Parameters
    ----------
    progress
        what `fit` returned.
    """
    return {"best_step": progress.best_step, "history": progress.history}


def _density(model: AEM, task: PlaneTask, config: ExperimentConfig) -> PlaneDensity:
    """Return the density for the figure, by quadrature or by importance sampling as in the paper."""
    settings = config.evaluate
    if not settings.importance_samples:
        return plane_density(model, task.bounds, settings.grid)
    return estimated_density(
        model,
        task.bounds,
        settings.grid,
        samples=settings.importance_samples,
        memory=MEMORY[model.device.type],
    )


def _draw(
    model: AEM, count: int, method: Method, proposals: int = RESAMPLED
) -> NDArray[np.float32]:
    torch.manual_seed(0)
    drawn = model().sample((count,), method=method, proposals=proposals)
    return np.asarray(drawn.cpu().numpy(), dtype=np.float32)
