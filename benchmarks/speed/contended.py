"""A process that does one piece of work on request, which `contention.py` measures.

    python benchmarks/speed/contended.py WORKLOAD MODEL

Each line on standard input asks for the work once; each line on standard output is an answer in
JSON. The first answer says that the process is ready and which package it imported, the others how
many seconds the work took. This file uses only features of all versions of the library, because it
also measures older checkouts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from aem import AEM

COLUMNS = 8
TABLE_ROWS = 4_000
SCORED_ROWS = 2_000
DRAWN_ROWS = 20_000
FIT_STEPS = 25
AUTOMATIC_STEPS = 20
SETUP_STEPS = 200
DEMO = (
    *("train.steps=40", "train.validate_every=40", "task.train_rows=20000"),
    *("task.validation_rows=500", "task.test_rows=500"),
)


def table(rows: int, seed: int) -> NDArray[np.float64]:
    """Draw columns that depend on each other and are far from Gaussian."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, COLUMNS))
    for d in range(1, COLUMNS):
        x[:, d] += np.sin(3 * x[:, d - 1]) + 2 * np.sign(x[:, d - 1] + 0.3)
    return x


def train(steps: int) -> "AEM":
    """Train a small model with energies for a number of steps."""
    from aem.config import ModelConfig, TrainConfig
    from aem.model.aem import AEM
    from aem.training.loop import fit

    rows = table(TABLE_ROWS, seed=0)
    config = ModelConfig(hidden=128, blocks=2, energy_hidden=64, energy_blocks=2, frequencies=0)
    model = AEM.for_data(config, rows)
    training = TrainConfig(steps=steps, validate_every=steps, device="cpu")
    fit(model, rows, table(100, seed=1), training, quiet=True)
    return model


def make_model(path: Path) -> None:
    """Train and save the model that is scored and drawn from."""
    from aem.model.files import save_model

    save_model(train(SETUP_STEPS), path)


def scoring(path: Path) -> Callable[[], object]:
    """Score rows at the default tolerance."""
    from aem import TableModel

    model, rows = TableModel.load(path), table(SCORED_ROWS, seed=2)
    return lambda: model.score(rows)


def sampling(path: Path) -> Callable[[], object]:
    """Draw rows by the exact method."""
    from aem import TableModel

    model = TableModel.load(path)
    return lambda: model.sample(DRAWN_ROWS, seed=3)


def fitting(path: Path) -> Callable[[], object]:
    """Take a few training steps of a model with energies."""
    return lambda: train(FIT_STEPS)


def automatic(path: Path) -> Callable[[], object]:
    """Fit a table with the automatic settings, except for the number of steps."""
    from aem import AEMDensity

    rows = table(TABLE_ROWS, seed=0)
    return lambda: AEMDensity(steps=AUTOMATIC_STEPS, device="cpu").fit(rows)


def demonstration(path: Path) -> Callable[[], object]:
    """Run `make demo`'s command from start to end, with fewer rows and steps."""
    settings = [argument for setting in DEMO for argument in ("--set", setting)]

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = ["-m", "aem.cli", "reproduce", "spirals", "--preset", "fast", "--quiet"]
            subprocess.run(
                [sys.executable, *command, "--out", f"{folder}/demo", *settings], check=True
            )

    return run


WORK: dict[str, Callable[[Path], Callable[[], object]]] = {
    "score": scoring,
    "fit": fitting,
    "automatic fit": automatic,
    "sample": sampling,
    "demo": demonstration,
}


def main() -> None:
    """Answer requests until the input ends."""
    # Answers have a channel of their own, which the library does not print to.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import aem

    name, path = sys.argv[1], Path(sys.argv[2])
    if name == "model":
        make_model(path)
        return
    work = WORK[name](path)
    print(json.dumps({"package": aem.__file__}), file=answers, flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        work()
        print(json.dumps({"seconds": time.perf_counter() - started}), file=answers, flush=True)


if __name__ == "__main__":
    main()
