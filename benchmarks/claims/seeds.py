"""The gaps of the tasks in the plane for twenty seeds.

Run `python -m benchmarks.claims.seeds --out results/seeds/fast.json --processes 10`.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

from aem.base.devices import choose_device
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.conditionals.normalizer import Quadrature
from aem.data.tasks import plane_task
from aem.model.aem import AEM
from aem.paper.plane.config import experiment
from aem.training.loop import fit

TASKS = ("spirals", "checkerboard", "diamond")
SEEDS = 20
TEST_ROWS = 500
TOLERANCE = 1e-2  # nats a row: enough to tell a fit from a failure


def gap_of(task_name: str, seed: int) -> tuple[float, float]:
    """Train one model and return its gap and its least likely test row."""
    task = plane_task(task_name)
    config = experiment(task_name, "fast", None, [f"train.seed={seed}"])
    train, validation = task.sample(1_000_000, 3 * seed), task.sample(2_000, 3 * seed + 1)
    test = task.sample(TEST_ROWS, 3 * seed + 2)
    torch.manual_seed(seed)
    model = AEM.for_data(config.model, train)
    fit(model, train, validation, config.train, quiet=True)
    device = choose_device(config.train.device)
    settings = Quadrature(tolerance=TOLERANCE, memory=2**30)
    scores = model().scores(torch.from_numpy(test).to(device), settings)
    log_prob = scores.log_prob.sum(-1).cpu().numpy()
    return float((task.log_prob(test) - log_prob).mean()), float(log_prob.min())


def work(worker: int, workers: int) -> None:
    """Run the share of one worker and print one JSON line per run."""
    for job in range(worker, len(TASKS) * SEEDS, workers):
        task, seed = TASKS[job % len(TASKS)], job // len(TASKS)
        print(json.dumps([task, seed, *gap_of(task, seed)]), flush=True)


def main() -> None:
    """Divide the runs among processes and collect the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        work(arguments.worker, arguments.processes)
        return
    started = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.claims.seeds", "--out", str(arguments.out)]
    command += ["--processes", str(arguments.processes), "--worker"]
    workers = [
        subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True)
        for i in range(arguments.processes)
    ]
    lines = [line for worker in workers for line in worker.communicate()[0].splitlines()]
    if any(worker.returncode for worker in workers):
        sys.exit("a run failed; its error is above")
    runs = sorted(json.loads(line) for line in lines)
    result = {
        "task": "seeds",
        "preset": "fast",
        **provenance(experiment("spirals", "fast"), 0, choose_device("auto")),
        "seconds": time.monotonic() - started,
        "gaps": {name: [gap for task, _, gap, _ in runs if task == name] for name in TASKS},
        "worst_rows": {name: [low for task, _, _, low in runs if task == name] for name in TASKS},
    }
    write_json(arguments.out, result)
    for name, gaps in result["gaps"].items():
        print(f"{name}: {len(gaps)} seeds, gap {min(gaps):.4f} … {max(gaps):.4f}")


if __name__ == "__main__":
    main()
