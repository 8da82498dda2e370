"""What a gradient of a log density costs beside the log density itself, and how exact it is.

    python -m benchmarks.speed.gradients [--turns 7]

Trains small models of a table made by a formula, and measures for each the seconds of log densities
of the same rows without a gradient and with one; both take turns. The gradients at several tolerances
are compared with those at a far smaller one. Writes results/bench/gradients.json and prints a line
for each model.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aem import AEM, ModelConfig, TrainConfig, fit
from aem.base.files import write_json
from aem.base.provenance import provenance
from benchmarks.places import ROOT
from benchmarks.speed.measuring import Effort, measure_in_turns

OUT = ROOT / "results/bench/gradients.json"
TOLERANCES = (1e-3, 1e-6)
REFERENCE = 1e-9
COMPARED = 8  # rows whose gradients are compared


@dataclass(frozen=True)
class Case:
    """A model to train: columns, the width of its energy network and its Fourier features."""

    name: str
    columns: int
    width: int
    frequencies: int


CASES = (
    Case("2 columns, small networks", 2, 32, 0),
    Case("2 columns, small networks, Fourier features", 2, 32, 8),
    Case("6 columns, the default energy network", 6, 128, 0),
)


@dataclass(frozen=True)
class Plan:
    """How long a model is trained, and how its log densities are measured."""

    steps: int = 300
    training_rows: int = 5000
    rows: int = 256
    turns: int = 7


def table(columns: int, rows: int) -> NDArray[np.float64]:
    """Columns that each bend with the one before."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns))
    for d in range(1, columns):
        x[:, d] = 0.5 * x[:, d] + np.sin(2 * x[:, d - 1])
    return x


def trained(case: Case, plan: Plan) -> AEM:
    """Return a model of the table, trained for a few steps."""
    torch.manual_seed(0)
    x = table(case.columns, plan.training_rows)
    settings = ModelConfig(
        hidden=64,
        blocks=2,
        energy_hidden=case.width,
        energy_blocks=2 if case.width < 64 else 4,
        frequencies=case.frequencies,
    )
    model = AEM.for_data(settings, x[:-500])
    fit(model, x[:-500], x[-500:], TrainConfig(steps=plan.steps, device="cpu"), quiet=True)
    return model


def gradient(model: AEM, rows: Tensor, tolerance: float) -> Tensor:
    """Return the gradients of the rows' log densities."""
    leaf = rows.detach().requires_grad_()
    log_prob, _ = model().log_prob_and_error(leaf, tolerance)
    return torch.autograd.grad(log_prob.sum(), leaf)[0]


def measure(case: Case, plan: Plan) -> dict[str, Any]:
    """Measure one model."""
    model = trained(case, plan)
    rows = torch.from_numpy(table(case.columns, plan.rows))
    calls: list[Callable[[], object]] = [
        lambda: model().log_prob(rows),
        lambda: gradient(model, rows, TOLERANCES[0]),
    ]
    effort = Effort(seconds=1e6, most=plan.turns, least=plan.turns)
    score, both = measure_in_turns(calls, torch.device("cpu"), effort)
    some = rows[:COMPARED]
    exact = gradient(model, some, REFERENCE)
    errors = {
        f"{tolerance:g}": float((gradient(model, some, tolerance) - exact).norm() / exact.norm())
        for tolerance in TOLERANCES
    }
    return {
        **asdict(case),
        "rows": plan.rows,
        "seconds_score": score.seconds,
        "seconds_score_and_gradient": both.seconds,
        "ratio": both.seconds / score.seconds,
        "relative_errors": errors,
    }


def run(plan: Plan, out: Path) -> None:
    """Measure all models and write what was found."""
    started = time.monotonic()
    measurements = [measure(case, plan) for case in CASES]
    record = {
        "task": "gradients",
        **provenance(plan, 0, torch.device("cpu")),
        "cores": os.cpu_count(),
        "load_at_start": os.getloadavg()[0],
        "reference_tolerance": REFERENCE,
        "measurements": measurements,
        "seconds": time.monotonic() - started,
    }
    write_json(out, record)
    for m in measurements:
        print(f"{m['name']}: {m['ratio']:.2f} times the score, errors {m['relative_errors']}")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=Plan.turns)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    run(Plan(turns=arguments.turns), arguments.out)


if __name__ == "__main__":
    main()
