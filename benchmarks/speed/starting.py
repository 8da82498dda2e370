"""The time that `aem` takes to start.

    python -m benchmarks.speed.starting [--before CHECKOUT] [--turns 7]

Measures `aem --help`, which needs no torch, and `aem score --help`, which loads the modules that
score, each in a process of its own. With --before an older checkout is measured in the same run;
the two take turns, so that a temporary slowdown of the machine affects both. Writes
results/bench/starting.json and prints a line for each command.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import aem
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.errors import AemError
from benchmarks.places import ROOT, commit_of

OUT = ROOT / "results/bench/starting.json"
COMMANDS = (("--help",), ("score", "--help"))
PROGRAM = "from aem.cli import main; main()"


@dataclass(frozen=True)
class Plan:
    """The number of starts of each command; a first start fills caches and is not counted."""

    turns: int = 7


def start(source: Path, *arguments: str) -> float:
    """Return the seconds that the program of a source tree takes to start, answer and end."""
    started = time.perf_counter()
    _python(source, PROGRAM, *arguments)
    return time.perf_counter() - started


def check_source(source: Path) -> None:
    """Refuse a tree that another installation of the package would hide."""
    package = _python(source, "import aem; print(aem.__file__)").strip()
    if not Path(package).is_relative_to(source):
        raise AemError(f"imported {package}, which is not in {source}")


def _python(source: Path, program: str, *arguments: str) -> str:
    with tempfile.TemporaryDirectory() as folder:  # the checkout is no place to import from
        ended = subprocess.run(
            [sys.executable, "-c", program, *arguments], cwd=folder, capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHONPATH": str(source)},
        )  # fmt: skip
    if ended.returncode != 0:
        raise AemError(f"{source}: {' '.join(arguments)} failed\n{ended.stderr[-2000:]}")
    return ended.stdout


def measure(sources: dict[str, Path], plan: Plan) -> list[dict[str, Any]]:
    """Start every command of every tree in turns."""
    for source in sources.values():
        check_source(source)
    found = []
    for command in COMMANDS:
        seconds: dict[str, list[float]] = {tree: [] for tree in sources}
        for turn in range(plan.turns + 1):
            for tree, source in sources.items():
                taken = start(source, *command)
                if turn:
                    seconds[tree].append(taken)
        name = " ".join(("aem", *command))
        found += [
            {"start": name, "tree": tree, "seconds": taken, "median": statistics.median(taken)}
            for tree, taken in seconds.items()
        ]
    return found


def run(plan: Plan, before: Path | None, out: Path) -> None:
    """Measure this tree, and an older one if there is one, and write what was found."""
    started = time.monotonic()
    sources = {"after": Path(aem.__file__).resolve().parents[1]}
    if before is not None:
        sources = {"before": before.resolve() / "src", **sources}
    result = {
        "task": "starting",
        **provenance(plan, 0, torch.device("cpu")),
        "before_commit": None if before is None else commit_of(before),
        "cores": os.cpu_count(),
        "load_at_start": os.getloadavg()[0],
        "measurements": measure(sources, plan),
    }
    write_json(out, {**result, "seconds": time.monotonic() - started})
    for m in result["measurements"]:
        print(f"{m['start']}, {m['tree']}: {m['median']:.3f} s")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="an older checkout to measure as well")
    parser.add_argument("--turns", type=int, default=Plan.turns)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    run(Plan(arguments.turns), arguments.before, arguments.out)


if __name__ == "__main__":
    main()
