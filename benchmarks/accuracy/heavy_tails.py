"""What a heavy-tailed column costs each kind of proposal, beside the truth.

Run `python -m benchmarks.accuracy.heavy_tails`; it takes about two minutes of one CPU and writes
results/accuracy/heavy-tails.json. The second of two columns is a Student-t variable whose location and
scale depend on the first, so the best possible score is known. Models differ in their proposal alone
and are scored on the same held-out rows by quadrature.
"""

import argparse
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
from benchmarks.places import ROOT

Array = NDArray[np.float64]

DEGREES = (1.5, 2.0, 3.0)  # of freedom, of the data
TRAIN, VALIDATION, TEST = 10_000, 1_000, 2_000
MODEL = ModelConfig(hidden=32, blocks=1, gamma=8, energy_hidden=32, energy_blocks=1, frequencies=0)
TRAINING = TrainConfig(
    steps=1200, batch_size=256, learning_rate=5e-3, averaging=0.99, validate_every=300, device="cpu"
)
PROPOSALS = {
    "mixture of Gaussians": MODEL,
    "mixture of Laplace distributions": replace(MODEL, proposal="laplace"),
    "mixture of Student-t distributions": replace(MODEL, proposal="student_t"),
    "mixture of Cauchy distributions": replace(MODEL, proposal="student_t", degrees_of_freedom=1.0),
}


def rows_of(count: int, degrees: float, seed: int) -> tuple[Array, Array]:
    """Rows, and their true log densities."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=count)
    location, scale = np.sin(2 * first), np.exp(0.5 * first)
    noise = rng.standard_t(degrees, count)
    log_prob = stats.norm.logpdf(first) + stats.t.logpdf(noise, degrees) - np.log(scale)
    return np.stack((first, location + scale * noise), 1), log_prob


def measure(degrees: float, config: ModelConfig, seed: int) -> dict[str, Any]:
    """One model on one table: held-out nats per row below the truth, and what its tails cost."""
    train, _ = rows_of(TRAIN, degrees, 3 * seed)
    validation, _ = rows_of(VALIDATION, degrees, 3 * seed + 1)
    test, truth = rows_of(TEST, degrees, 3 * seed + 2)
    started = time.monotonic()
    torch.manual_seed(seed)
    model = AEM.for_data(config, train)
    fit(model, train, validation, replace(TRAINING, seed=seed), quiet=True)
    fitted = time.monotonic()
    scores = model().scores(torch.from_numpy(test), Quadrature())
    log_prob = scores.log_prob.sum(-1).numpy()
    short = truth - log_prob
    return {
        "test_log_prob": float(log_prob.mean()),
        "gap": float(short.mean()),
        "gap_2se": float(2 * short.std() / np.sqrt(TEST)),
        "worst": float(log_prob.min()),
        "worst_gap": float(short.max()),
        "proposal_gap": float((truth - scores.log_proposal.sum(-1).numpy()).mean()),
        "largest_error": float(scores.error.sum(-1).max()),
        "nodes": float(scores.nodes.double().mean()),
        "seconds": {
            "fit": round(fitted - started, 2),
            "score": round(time.monotonic() - fitted, 2),
        },
    }


def main() -> None:
    """Every proposal on every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    set_threads(1)
    started = time.process_time()
    tables: dict[str, dict[str, Any]] = {}
    for degrees in DEGREES:
        found = tables[f"{degrees:g}"] = {}
        for name, config in PROPOSALS.items():
            found[name] = measure(degrees, config, arguments.seed)
            gap = found[name]["gap"]
            print(f"{degrees:g} degrees of freedom, {name}: {gap:.3f} nats below the truth")
    record = {
        **provenance(MODEL, arguments.seed, choose_device("cpu")),
        "training": TRAINING.__dict__,
        "rows": {"train": TRAIN, "validation": VALIDATION, "test": TEST},
        "cpu_seconds": round(time.process_time() - started, 1),
        "degrees_of_freedom": tables,
    }
    write_json(ROOT / "results" / "accuracy" / "heavy-tails.json", record)


if __name__ == "__main__":
    main()
