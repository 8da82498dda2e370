"""The paper's plane experiments: train, evaluate against the exact density, draw the figure row."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aem.base.devices import choose_device
from aem.base.files import check_writable, write_atomically, write_json
from aem.base.provenance import provenance
from aem.base.settings import to_toml
from aem.data.synthetic import PlaneTask
from aem.data.tasks import plane_task
from aem.errors import AemError
from aem.evaluation.summary import two_standard_errors
from aem.model.aem import AEM
from aem.model.files import save_model
from aem.model.scoring import Scores
from aem.paper.plane.config import ExperimentConfig
from aem.paper.plane.density import plane_density
from aem.paper.plane.picture import Picture
from aem.paper.plots import plane_row, save_figure
from aem.training.checkpoint import Progress
from aem.training.loop import fit

PICTURE_SAMPLES = {"cpu": 100_000, "cuda": 1_000_000}


@dataclass(frozen=True)
class Run:
    """What a run leaves behind."""

    model: AEM
    metrics: dict[str, Any]
    folder: Path


def run_plane(config: ExperimentConfig, preset: str, folder: Path, *, quiet: bool = False) -> Run:
    """Train and evaluate one plane task; leaves metrics, model, settings and figure in the folder."""
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
    save_model(model, folder / "model.safetensors", task=task.name, preset=preset)
    metrics = {
        "task": task.name,
        "preset": preset,
        **provenance(config, seed, device),
        "steps": progress.step,
        "seconds": round(progress.seconds, 2),
        **evaluate_plane(model, task, test, device),
        "training": training_summary(progress),
    }
    write_json(folder / "metrics.json", metrics)
    count = PICTURE_SAMPLES[device.type]
    density = plane_density(model, task.bounds)
    Picture.of(task, density).save(folder / "density.npz")
    figure = plane_row(
        task.bounds,
        train[:1_000_000],
        density,
        _draw(model, count, "proposal"),
        # A literal energy is drawn from as the paper does: exactly, it would cost a CDF a value.
        _draw(model, count, "exact" if config.model.energy == "relative" else "resample"),
        captions=(
            f"best possible: {metrics['limit']:.3f} nats",
            f"{metrics['proposal_gap']:.3f} nats below it",
            "",
            f"{metrics['gap']:.3f} nats below it",
            "",
        ),
    )
    save_figure(figure, folder / "figure.png")
    return Run(model, metrics, folder)


def evaluate_plane(
    model: AEM, task: PlaneTask, test: NDArray[np.floating], device: torch.device
) -> dict[str, Any]:
    """Test log-likelihood by quadrature, and its distance from the best possible.

    The gap is the mean over test rows of true minus model log density: the same expectation as
    limit − test_log_prob (a Kullback–Leibler divergence) with less noise, as both terms see the
    same rows.
    """
    started = time.monotonic()
    scores = model.to(device)().scores(torch.from_numpy(test).to(device))
    log_prob = scores.log_prob.sum(-1).cpu().numpy()
    truth = task.log_prob(test)
    gap = truth - log_prob
    if not np.isfinite(gap).all():
        raise AemError("a test row has no density under the model: the proposal does not cover it")
    return {
        "test_log_prob": float(log_prob.mean()),
        "test_log_prob_2se": two_standard_errors(log_prob),
        "test_log_prob_error": float(scores.error.sum(-1).mean()),
        "test_log_prob_worst": float(log_prob.min()),
        "proposal_log_prob": float(scores.log_proposal.sum(-1).mean()),
        "limit": -task.entropy(),
        "gap": float(gap.mean()),
        "gap_2se": two_standard_errors(gap),
        "proposal_gap": float((truth - scores.log_proposal.sum(-1).cpu().numpy()).mean()),
        **quadrature_summary(scores),
        "evaluation_seconds": round(time.monotonic() - started, 2),
    }


def quadrature_summary(scores: Scores) -> dict[str, Any]:
    """What the exact score took."""
    return {
        "nodes_mean": float(scores.nodes.double().mean()),
        "nodes_max": int(scores.nodes.max()),
        "rows_not_converged": int((~scores.converged).any(-1).sum()),
    }


def training_summary(progress: Progress) -> dict[str, Any]:
    """The training curve, and which step was kept."""
    return {"best_step": progress.best_step, "history": progress.history}


def _draw(model: AEM, count: int, method: Any) -> NDArray[np.float32]:
    torch.manual_seed(0)
    return np.asarray(model().sample((count,), method=method).cpu().numpy(), dtype=np.float32)
