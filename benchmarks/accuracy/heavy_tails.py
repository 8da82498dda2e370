"""Gaps of a Gaussian and a Student-t proposal to the true density of a heavy-tailed column.

Run `python -m benchmarks.accuracy.heavy_tails`; it takes about two minutes of one CPU and writes
results/accuracy/heavy-tails.json. The second of two columns is a Student-t variable whose location
and scale depend on the first, so the best possible score is known. Models differ in their proposal
alone and are scored on the same held-out rows by quadrature.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from aem import AEM, ModelConfig, Quadrature, TrainConfig, fit, set_threads
from aem.base.devices import choose_device
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.base.settings import to_mapping
from benchmarks.places import ROOT

Array = NDArray[np.float64]

DEGREES = (1.5, 3.0)  # of freedom, of the data
SEEDS = {1_000: range(3), 10_000: range(1)}  # tables of so many training rows
STEPS = {1_000: 600, 10_000: 1_000}
TEST = 10_000
MODEL = ModelConfig(hidden=32, blocks=1, gamma=8, energy_hidden=32, energy_blocks=1, frequencies=0)
TRAINING = TrainConfig(
    batch_size=256, learning_rate=5e-3, averaging=0.99, validate_every=100, device="cpu"
)
PROPOSALS = ("mixture", "student_t")


def rows_of(count: int, degrees: float, seed: int) -> tuple[Array, Array]:
    """Draw rows, and compute their true log densities."""
    rng = np.random.default_rng(seed)
    first, noise = rng.normal(size=count), rng.standard_t(degrees, count)
    location, scale = np.sin(2 * first), np.exp(0.5 * first)
    log_prob = stats.norm.logpdf(first) + stats.t.logpdf(noise, degrees) - np.log(scale)
    return np.stack((first, location + scale * noise), 1), log_prob


def measure(rows: int, degrees: float, proposal: str, seed: int) -> dict[str, Any]:
    """Fit one model to one table and return the gaps of held-out rows to the truth."""
    train, _ = rows_of(rows, degrees, 3 * seed)
    validation, _ = rows_of(rows // 2, degrees, 3 * seed + 1)
    test, truth = rows_of(TEST, degrees, 3 * seed + 2)
    started = time.monotonic()
    torch.manual_seed(seed)
    model = AEM.for_data(replace(MODEL, proposal=proposal), train)
    training = replace(TRAINING, steps=STEPS[rows], seed=seed)
    progress = fit(model, train, validation, training, quiet=True)
    fitted = time.monotonic()
    scores = model().scores(torch.from_numpy(test), Quadrature())
    log_prob = scores.log_prob.sum(-1).numpy()
    below = truth - log_prob
    return {
        "train_rows": rows,
        "degrees_of_freedom": degrees,
        "proposal": proposal,
        "seed": seed,
        "steps": progress.step,
        "best_step": progress.best_step,
        "test_log_prob": float(log_prob.mean()),
        "gap": float(below.mean()),
        "gap_2se": float(2 * below.std() / np.sqrt(TEST)),
        "worst_gap": float(below.max()),
        "largest_error": float(scores.error.sum(-1).max()),
        "nodes": float(scores.nodes.double().mean()),
        "seconds_to_fit": round(fitted - started, 2),
        "seconds_to_score": round(time.monotonic() - fitted, 2),
    }


def main() -> None:
    """Measure both proposals on every table."""
    set_threads(1)
    started = time.process_time()
    runs = []
    for rows, seeds in SEEDS.items():
        for degrees in DEGREES:
            for proposal in PROPOSALS:
                for seed in seeds:
                    runs.append(measure(rows, degrees, proposal, seed))
                    print({key: runs[-1][key] for key in ("gap", "gap_2se", "worst_gap")})
    record = {
        **provenance(MODEL, 0, choose_device("cpu")),
        "training": to_mapping(TRAINING),
        "test_rows": TEST,
        "cpu_seconds": round(time.process_time() - started, 1),
        "runs": runs,
    }
    write_json(ROOT / "results" / "accuracy" / "heavy-tails.json", record)


if __name__ == "__main__":
    main()
