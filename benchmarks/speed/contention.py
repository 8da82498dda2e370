"""Speed on a busy machine: the default number of threads compared with one thread.

    python -m benchmarks.speed.contention [--before CHECKOUT] [--quick] [--workloads score,fit]

Scores, training steps, an automatic fit, samples and a short `make demo` run in processes of their
own (`contended.py`), once as a user runs them and once with a single thread, while 0, 1 and 4 other
processes keep the machine busy. With --before an older checkout is measured in the same run. All
take turns, so that a temporary slowdown affects all alike; a turn that exceeds its limit is killed
and counts as "slower than". Writes results/bench/contention.json after every measurement and prints
a table.
"""

import argparse
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import aem
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.errors import AemError
from benchmarks.neighbours import neighbours
from benchmarks.places import commit_of
from benchmarks.speed import contended

SCRIPT = Path(contended.__file__).resolve()
# Variables that affect the number of threads; they are removed before a setting is applied.
DECIDE_THREADS = ("AEM_THREADS", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_")
SETTINGS = {"one": 1, "default": None, "two": 2, "four": 4}
TARGETS = {1: 0.9, 4: 0.8}  # default over one thread, by the number of busy neighbours
IDLE_TARGETS = {"score": 1.6}  # with none; only scores of many rows must gain from threads
STARTING = 180.0  # seconds a process may take to import and load


@dataclass(frozen=True)
class Workload:
    """The work of one turn: an amount of a unit, or a whole task that is measured in seconds."""

    unit: str = "s"
    work: int = 1
    warm_up: bool = True
    limits: int = 1  # it may take so many times the limit


WORKLOADS = {
    "score": Workload("rows/s", contended.SCORED_ROWS),
    "fit": Workload("steps/s", contended.FIT_STEPS),
    "automatic fit": Workload(),
    "sample": Workload("rows/s", contended.DRAWN_ROWS),
    "demo": Workload(warm_up=False, limits=2),  # a command of its own every time
}


@dataclass(frozen=True)
class Plan:
    """The measurements and their time limits."""

    workloads: tuple[str, ...] = tuple(WORKLOADS)
    threads: tuple[str, ...] = ("one", "default")
    neighbours: tuple[int, ...] = (0, 1, 4)
    turns: int = 5  # at most
    share: float = 5.0  # seconds of its own after which a process takes no further turn
    limit: float = 20.0  # seconds a turn may take


@dataclass(frozen=True)
class Measurement:
    """The times of the turns of one workload, and whether the last was stopped."""

    workload: str
    tree: str  # "before" or "after"
    threads: str
    neighbours: int
    seconds: tuple[float, ...]
    at_least: float | None = None  # seconds the turn took that was cut off

    @property
    def median(self) -> float:
        """Return the median seconds of a turn, a lower bound where a turn was stopped."""
        cut = () if self.at_least is None else (self.at_least,)
        return float(statistics.median((*self.seconds, *cut)))

    def as_record(self) -> dict[str, Any]:
        """Return the measurement as a JSON record."""
        about = WORKLOADS[self.workload]
        shown = self.median if about.unit == "s" else about.work / self.median
        return {**self.__dict__, "median": self.median, "value": shown, "unit": about.unit}


class Worker:
    """A process for one workload, with the threads and the source tree of a setting."""

    def __init__(self, workload: str, tree: str, source: Path, threads: str, model: Path) -> None:
        self.workload, self.tree, self.threads = workload, tree, threads
        self.source, self.model = source, model
        self.process: subprocess.Popen[str] | None = None
        self.answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.errors = model.parent / f"{workload}-{tree}-{threads}.txt"

    def __str__(self) -> str:
        return f"{self.workload}, {self.tree}, {self.threads}"

    def command(self) -> list[str]:
        """Return the command of the process."""
        return [sys.executable, str(SCRIPT), self.workload, str(self.model)]

    def start(self) -> None:
        """Start the process and wait until it is ready, unless it is running."""
        if self.process is not None:
            return
        self.answers = queue.SimpleQueue()
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(os.environ, self.source, self.threads),
                cwd=self.model.parent,
                process_group=0,  # so that its own children can be killed with it
            )
        threading.Thread(target=_read, args=(self.process, self.answers), daemon=True).start()
        answer = self._answer(STARTING)
        if answer is None:
            raise AemError(f"{self}: did not start within {STARTING:.0f} s")
        if not Path(answer["package"]).is_relative_to(self.source):
            raise AemError(f"{self}: imported {answer['package']}, which is not in {self.source}")

    def turn(self, limit: float) -> float | None:
        """Return the seconds of one turn; past the limit, kill the process and return none."""
        assert self.process is not None and self.process.stdin is not None
        with suppress(
            BrokenPipeError
        ):  # a process that has ended says why when asked for its answer
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        answer = self._answer(limit)
        return None if answer is None else float(answer["seconds"])

    def stop(self) -> None:
        """Kill the process and its children."""
        process, self.process = self.process, None
        if process is None:
            return
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()

    def _answer(self, limit: float) -> dict[str, Any] | None:
        try:
            line = self.answers.get(timeout=limit)
        except queue.Empty:
            self.stop()
            return None
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self.stop()
        said = self.errors.read_text(encoding="utf-8", errors="replace").strip()
        raise AemError(f"{self}: failed\n{said[-2000:]}")


def _read(process: subprocess.Popen[str], answers: "queue.SimpleQueue[str]") -> None:
    """Pass lines on; an empty line marks the end."""
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            answers.put(line)
    answers.put("")


def environment(inherited: Mapping[str, str], source: Path, threads: str) -> dict[str, str]:
    """Return the environment of a process: its source tree and the threads of the setting."""
    found = {k: v for k, v in inherited.items() if not k.startswith(DECIDE_THREADS)}
    found["PYTHONPATH"] = str(source)
    count = SETTINGS[threads]
    if count is not None:
        # Older checkouts know only the second variable.
        found |= {"AEM_THREADS": str(count), "OMP_NUM_THREADS": str(count)}
    return found


def take_turns(workers: Sequence[Worker], count: int, plan: Plan) -> list[Measurement]:
    """Measure workers of one workload in turns beside a number of busy processes.

    Each has at least one turn. One that has used up its share of the time takes no further ones,
    and one that was cut off is done.
    """
    about = WORKLOADS[workers[0].workload]
    limit = plan.limit * about.limits
    seconds: list[list[float]] = [[] for _ in workers]
    cut = [False] * len(workers)
    for i, worker in enumerate(workers):
        fresh = worker.process is None
        worker.start()
        if fresh and about.warm_up:
            cut[i] = worker.turn(limit) is None
    with neighbours(count):
        for _ in range(plan.turns):
            for i, worker in enumerate(workers):
                if cut[i] or sum(seconds[i]) > plan.share:
                    continue
                taken = worker.turn(limit)
                if taken is None:
                    cut[i] = True
                else:
                    seconds[i].append(taken)
    return [
        Measurement(w.workload, w.tree, w.threads, count, tuple(taken), limit if off else None)
        for w, taken, off in zip(workers, seconds, cut, strict=True)
    ]


def compare(measurements: Iterable[Measurement]) -> list[dict[str, Any]]:
    """How many times as fast the default is as one thread, beside its target.

    `bound` says whether the ratio is exact or, where a turn was cut off, the most or the least it
    can be; a target that the bound does not decide is neither met nor missed, which `met` says with
    None.
    """
    by: dict[tuple[str, int, str], dict[str, Measurement]] = {}
    for m in measurements:
        by.setdefault((m.workload, m.neighbours, m.tree), {})[m.threads] = m
    found = []
    for (workload, count, tree), settings in by.items():
        one, default = settings.get("one"), settings.get("default")
        if one is None or default is None:
            continue
        target = TARGETS.get(count) if count else IDLE_TARGETS.get(workload)
        ratio: float | None = one.median / default.median
        bound, met = "exact", None
        if one.at_least is not None and default.at_least is not None:
            ratio, bound = None, "unknown"
        elif default.at_least is not None:
            bound = "at most"
        elif one.at_least is not None:
            bound = "at least"
        if target is not None and ratio is not None:
            reached = ratio >= target
            met = reached if bound == "exact" or reached == (bound == "at least") else None
        found.append(
            {
                "workload": workload,
                "neighbours": count,
                "tree": tree,
                "ratio": ratio,
                "bound": bound,
                "target": target,
                "met": met,
            }
        )
    return found


def figure(value: float) -> str:
    """Return a number with three digits and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def speed(m: Measurement) -> str:
    """Return a rate or seconds, with a sign where a turn was stopped."""
    record = m.as_record()
    sign = "" if m.at_least is None else "> " if record["unit"] == "s" else "< "
    return f"{sign}{figure(record['value'])}"


def show(measurements: Sequence[Measurement], console: Console) -> None:
    """Print a line for each workload, number of busy processes and source tree."""
    names = list(dict.fromkeys(m.threads for m in measurements))
    table = Table(title="beside busy neighbours; the ratio is how much faster default is than one")
    for heading in ("what", "busy", "tree", *names, "ratio", "target"):
        table.add_column(heading)
    compared = {(c["workload"], c["neighbours"], c["tree"]): c for c in compare(measurements)}
    for key in dict.fromkeys((m.workload, m.neighbours, m.tree) for m in measurements):
        row = {m.threads: m for m in measurements if (m.workload, m.neighbours, m.tree) == key}
        cells = [speed(row[name]) if name in row else "" for name in names]
        c = compared.get(key)
        ratio = target = ""
        if c is not None and c["ratio"] is not None:
            sign = {"exact": "", "at most": "< ", "at least": "> "}[c["bound"]]
            ratio = f"{sign}{c['ratio']:.2f}"
        if c is not None and c["target"] is not None:
            verdict = {True: ", met", False: ", missed", None: ""}[c["met"]]
            target = f"≥ {c['target']}{verdict}"
        what = f"{key[0]}, {WORKLOADS[key[0]].unit}"
        table.add_row(what, str(key[1]), key[2], *cells, ratio, target)
    console.print(table)


def make_model(source: Path, path: Path) -> None:
    """Train the model that is scored and drawn from, with one thread."""
    command = [sys.executable, str(SCRIPT), "model", str(path)]
    subprocess.run(command, check=True, env=environment(os.environ, source, "one"))


def run(plan: Plan, before: Path | None, out: Path, preset: str) -> list[Measurement]:
    """Measure everything; the result file is written after every group of turns."""
    console, started = Console(), time.monotonic()
    sources = {"after": Path(aem.__file__).resolve().parents[1]}
    if before is not None:
        sources = {"before": before.resolve() / "src", **sources}
    result: dict[str, Any] = {
        "task": "contention",
        "preset": preset,
        **provenance(plan, 0, torch.device("cpu")),
        "before_commit": None if before is None else commit_of(before),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else None,
        "load_at_start": os.getloadavg()[0],
    }
    measurements: list[Measurement] = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.aem"
        make_model(sources["after"], model)
        for workload in plan.workloads:
            workers = [
                Worker(workload, tree, source, threads, model)
                for threads in plan.threads
                for tree, source in sources.items()
            ]
            try:
                for count in plan.neighbours:
                    measurements += (some := take_turns(workers, count, plan))
                    for m in some:
                        about = f"{workload} beside {count}, {m.tree}, {m.threads}"
                        unit = WORKLOADS[workload].unit
                        console.print(f"{about}: {speed(m)} {unit}", highlight=False)
                    result["measurements"] = [m.as_record() for m in measurements]
                    result["comparisons"] = compare(measurements)
                    result["seconds"] = time.monotonic() - started
                    write_json(out, result)
            finally:
                for worker in workers:
                    worker.stop()
    show(measurements, console)
    console.print(f"{out}, {time.monotonic() - started:.0f} s")
    return measurements


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="an older checkout to measure as well")
    parser.add_argument("--workloads", help=f"of {', '.join(WORKLOADS)}; default: all")
    parser.add_argument("--threads", default="one,default", help=f"of {', '.join(SETTINGS)}")
    parser.add_argument("--neighbours", help="how many busy processes; default: 0,1,4")
    parser.add_argument(
        "--share", type=float, help="seconds of turns for each process and neighbours"
    )
    parser.add_argument("--limit", type=float, help="seconds a turn may take")
    parser.add_argument("--quick", action="store_true", help="one turn, fewer neighbours, no demo")
    parser.add_argument("--out", type=Path, default=Path("results/bench/contention.json"))
    arguments = parser.parse_args()
    plan = Plan()
    if arguments.quick:
        workloads = tuple(name for name in WORKLOADS if name != "demo")
        plan = replace(plan, workloads=workloads, neighbours=(0, 1), turns=1, limit=10.0)
    if arguments.workloads:
        plan = replace(plan, workloads=_listed(arguments.workloads, WORKLOADS, parser))
    if arguments.neighbours:
        plan = replace(plan, neighbours=tuple(map(int, arguments.neighbours.split(","))))
    if arguments.share:
        plan = replace(plan, share=arguments.share)
    if arguments.limit:
        plan = replace(plan, limit=arguments.limit)
    plan = replace(plan, threads=_listed(arguments.threads, SETTINGS, parser))
    if arguments.before is not None and not (arguments.before / "src" / "aem").is_dir():
        parser.error(f"{arguments.before} is not a checkout: it has no src/aem")
    # SIGTERM must clean up like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run(plan, arguments.before, arguments.out, "quick" if arguments.quick else "full")


def _listed(text: str, known: Iterable[str], parser: argparse.ArgumentParser) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
