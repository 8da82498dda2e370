"""How many energies a score takes, and how many rows a processor core scores per second.

    python -m benchmarks.speed.scoring --before CHECKOUT [--models FOLDER] [--rows 200]

Models of random weights, models of tasks in the plane, and those that `AEMDensity` makes of tables are
scored by this tree and by an older one, which take turns. FOLDER keeps the trained models; those it
lacks are trained first. Processes have one thread each, and seconds are of processor time, which
other processes change less than the clock. Writes results/bench/scoring.json after every model.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import torch

import aem
from aem import AEM, AEMDensity, ModelConfig, TrainConfig, fit, save_model
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.base.randomness import seeded
from aem.data.tasks import plane_task
from aem.errors import AemError
from benchmarks.accuracy.tables import splits
from benchmarks.places import ROOT, commit_of
from benchmarks.speed.contenders import SHAPES, fill

OUT = ROOT / "results/bench/scoring.json"
TOLERANCES = (1e-2, 1e-3)
TABLES: Final = ("housing", "gas-10k", "magic", "parkinsons", "miniboone-40")
RANDOM: Final = {"random POWER": 0, "random POWER, Fourier": 8}  # frequencies
PLANE: Final = {  # task and frequencies
    "spirals": ("spirals", 0),
    "spirals, Fourier": ("spirals", 8),
    "checkerboard": ("checkerboard", 0),
    "checkerboard, Fourier": ("checkerboard", 8),
}


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Parameters
    ----------
    rows
        rows scored at a time.
    turns
        how often each tree scores them; the first time is not counted.
    steps
        of training a model in the plane.
    """

    rows: int = 200
    turns: int = 3
    steps: int = 2500


class Scorer:
    """A process that scores with one source tree.

    Parameters
    ----------
    source
        the tree, the folder that holds the package.
    model
        a file of a model.
    rows
        a file of rows.
    """

    def __init__(self, source: Path, model: Path, rows: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks/speed/scored.py"), str(model), str(rows)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(source), "AEM_THREADS": "1"},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.process.communicate()

    def score(self, tolerance: float, rows: int) -> dict[str, Any]:
        """Score the first rows to a tolerance."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(tolerance, rows, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise AemError(f"the scores of {self.process.args!r} failed")
        answer: dict[str, Any] = json.loads(line)
        return answer


def prepare(name: str, folder: Path, plan: Plan) -> tuple[Path, Path]:
    """Return the files of a model and its rows, made first where they are missing."""
    stem = name.replace(", ", "-").replace(" ", "-")
    model_file, rows_file = folder / f"{stem}.aem", folder / f"{stem}.npy"
    if model_file.exists() and rows_file.exists():
        return model_file, rows_file
    folder.mkdir(parents=True, exist_ok=True)
    with seeded(0, torch.device("cpu")):
        if name in TABLES:
            train, validation, rows = splits(name)[0]
            AEMDensity().fit(np.concatenate((train, validation))).save(model_file)
        elif name in RANDOM:
            shape = SHAPES["POWER"]
            config = ModelConfig(**{**shape.model().__dict__, "frequencies": RANDOM[name]})
            model = AEM.for_data(config, shape.rows(10_000).double().numpy()).eval()
            fill(model)
            save_model(model, model_file)
            rows = shape.rows(10_000, seed=1).double().numpy()
        else:
            task, frequencies = PLANE[name]
            config = ModelConfig(
                hidden=128, blocks=2, energy_hidden=64, energy_blocks=2, frequencies=frequencies
            )
            train, validation, rows = (
                plane_task(task).sample(count, seed).astype(np.float64)
                for seed, count in enumerate((100_000, 2_000, 10_000))
            )
            model = AEM.for_data(config, train)
            settings = TrainConfig(steps=plan.steps, device="cpu")
            fit(model, train, validation, settings, quiet=True)
            save_model(model, model_file)
    np.save(rows_file, rows)
    return model_file, rows_file


def compare(
    name: str, files: tuple[Path, Path], sources: dict[str, Path], plan: Plan
) -> list[dict[str, Any]]:
    """Score the rows of a model with every tree, in turns."""
    found = []
    with ExitStack() as stack:
        scorers = {t: stack.enter_context(Scorer(s, *files)) for t, s in sources.items()}
        for tolerance in TOLERANCES:
            answers: dict[str, list[dict[str, Any]]] = {tree: [] for tree in sources}
            for _ in range(plan.turns + 1):
                for tree, scorer in scorers.items():
                    answers[tree].append(scorer.score(tolerance, plan.rows))
            last = {tree: own[-1] for tree, own in answers.items()}
            entry = {
                "model": name,
                "tolerance": tolerance,
                "features": int(np.load(files[1], mmap_mode="r").shape[1]),
                "apart": _apart(list(last.values())),
            }
            found += [{**entry, "tree": tree, **_summary(own[1:])} for tree, own in answers.items()]
    return found


def _apart(answers: Sequence[dict[str, Any]]) -> float:
    """The largest difference of two trees' scores over the errors that both state, in any row."""
    log_density, error = (np.array([a[k] for a in answers]) for k in ("log_density", "error"))
    return float((np.ptp(log_density, axis=0) / (error.sum(0) + 1e-12)).max())


def _summary(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    seconds = [answer["seconds"] for answer in answers]
    nodes = np.array(answers[0]["nodes"], dtype=np.float64)
    return {
        "seconds": seconds,
        "rows_per_second": len(nodes) / min(seconds),
        "nodes": float(nodes.mean()),
        "most_over_median": float(nodes.max() / np.median(nodes)),
        "mean_error": float(np.mean(answers[0]["error"])),
        "unconverged": answers[0]["unconverged"],
    }


def run(plan: Plan, names: Sequence[str], folder: Path, before: Path, out: Path) -> None:
    """Measure all models and write what was found."""
    started = time.monotonic()
    sources = {
        "before": before.resolve() / "src",
        "after": Path(aem.__file__).resolve().parents[1],
    }
    result: dict[str, Any] = {
        "task": "scoring",
        **provenance(plan, 0, torch.device("cpu")),
        "before_commit": commit_of(before),
        "cores": os.cpu_count(),
        "plan": asdict(plan),
        "measurements": [],
    }
    for name in names:
        for entry in compare(name, prepare(name, folder, plan), sources, plan):
            result["measurements"].append(entry)
            print(
                f"{name}, {entry['tolerance']:g}, {entry['tree']}: {entry['nodes']:.0f} nodes per "
                f"row, {entry['rows_per_second']:.1f} rows/s",
                flush=True,
            )
        write_json(out, {**result, "seconds": time.monotonic() - started})


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=[*RANDOM, *PLANE, *TABLES])
    parser.add_argument("--before", type=Path, required=True, help="an older checkout")
    parser.add_argument("--models", type=Path, default=Path("runs/scoring"))
    parser.add_argument("--rows", type=int, default=Plan.rows)
    parser.add_argument("--turns", type=int, default=Plan.turns)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {*RANDOM, *PLANE, *TABLES}
    if unknown:
        parser.error(f"unknown models: {', '.join(sorted(unknown))}")
    plan = Plan(arguments.rows, arguments.turns)
    run(plan, arguments.names, arguments.models, arguments.before, arguments.out)


if __name__ == "__main__":
    main()
