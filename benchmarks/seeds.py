"""Do the plane tasks train from any seed? Twenty of them, none left out.

python benchmarks/seeds.py --out results/seeds/fast.json [--processes 4]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from aem.config import TrainConfig
from aem.io import write_json
from aem.presets import experiment
from aem.provenance import provenance
from aem.training.loop import choose_device

TASKS = ("spirals", "checkerboard", "diamond")
SEEDS = 20

ONE = """
import json, sys
from pathlib import Path
from aem.presets import experiment
from aem.reproduce import run_plane
task, out, *seeds = sys.argv[1:]
for seed in seeds:
    settings = [f"train.seed={seed}", "task.test_rows=1000"]
    run = run_plane(experiment(task, "fast", None, settings), "fast", Path(out) / seed, quiet=True)
    print(json.dumps([task, run.metrics["gap"], run.metrics["test_log_prob_worst"]]), flush=True)
"""


def main() -> None:
    """Run all seeds of all tasks, several processes at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    started = time.monotonic()
    share = [[str(s) for s in range(i, SEEDS, 4)] for i in range(4)]
    jobs = [(task, seeds) for task in TASKS for seeds in share]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}

    def run(job: tuple[str, list[str]]) -> list[list[object]]:
        task, seeds = job
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", ONE, task, folder, *seeds]
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, check=False
            )
        if done.returncode:
            sys.exit(f"{task} failed: {done.stderr[-2000:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    gaps: dict[str, list[float]] = {task: [] for task in TASKS}
    worst: dict[str, list[float]] = {task: [] for task in TASKS}
    with ThreadPoolExecutor(arguments.processes) as pool:
        for rows in pool.map(run, jobs):
            for task, gap, low in rows:
                gaps[str(task)].append(float(str(gap)))
                worst[str(task)].append(float(str(low)))
    device = choose_device("auto")
    result = {
        "task": "seeds",
        "preset": "fast",
        **provenance(experiment("spirals", "fast"), TrainConfig().seed, device),
        "gaps": gaps,
        "worst_rows": worst,
        "seconds": time.monotonic() - started,
    }
    write_json(arguments.out, result)
    for task, values in gaps.items():
        print(f"{task}: {len(values)} seeds, gap {min(values):.4f} … {max(values):.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
