"""Compare the speed of this library with a plain implementation and with zuko's flows, in one run.

    python -m benchmarks.speed.compare [--device cuda] [--quick] [--parts step,scaling,score,sample]

Prints tables and writes results/bench/<device>.json after every measurement, so that an
interrupted run keeps its results. Measurements that exceed the time limit are listed as skipped.
"""

import argparse
import gc
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from aem.base.devices import choose_device
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.config import TrainConfig
from benchmarks.speed.arithmetic import product_ceiling, step_flops
from benchmarks.speed.contenders import CONTENDERS, SHAPES, Contender, Shape, missing
from benchmarks.speed.measuring import Effort, Timing, measure, measure_in_turns, rows_for
from benchmarks.speed.scaling import energy_scaling, row_scaling

PARTS = ("step", "scaling", "score", "sample")
ALLOWED = {"cpu": 570.0, "cuda": 420.0}  # seconds for everything
# Seconds for one measurement.
EACH = {
    "cpu": {"step": 6.0, "score": 4.0, "sample": 4.0, "scaling": 2.0},
    "cuda": {"step": 1.5, "score": 1.0, "sample": 1.0, "scaling": 0.5},
}
COMPILED = ("POWER", "BSDS300")  # shapes whose step is also measured with torch.compile
FIRST_ROWS = {"cpu": 2, "cuda": 64}
MOST_ROWS = {"cpu": 2**13, "cuda": 2**17}


def slug(device: torch.device) -> str:
    """Return a file name for the device."""
    if device.type == "cpu":
        return "cpu"
    name = torch.cuda.get_device_name(device).lower().removeprefix("nvidia ")
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


class Bench:
    """A run of the benchmark, which writes each measurement to the result file at once."""

    def __init__(self, device: torch.device, out: Path, *, quick: bool, allowed: float) -> None:
        self.device, self.out, self.quick, self.allowed = device, out, quick, allowed
        self.started = time.monotonic()
        self.console = Console()
        self.ceiling = product_ceiling(device) if device.type == "cuda" else None
        self.result: dict[str, Any] = {
            "task": "bench",
            "preset": "quick" if quick else "full",
            **provenance(TrainConfig(), 0, device),
            "ceiling_tflops": None if self.ceiling is None else self.ceiling / 1e12,
            "measurements": [],
            "scaling": [],
        }

    def record(self, where: str, entry: dict[str, Any]) -> None:
        """Add an entry, write the file and print a line."""
        self.result[where].append(entry)
        self.result["seconds"] = time.monotonic() - self.started
        write_json(self.out, self.result)
        shown = {k: v for k, v in entry.items() if isinstance(v, str | int | float | list)}
        self.console.print(" ".join(f"{k}={_short(v)}" for k, v in shown.items()), highlight=False)

    def late(self) -> bool:
        """Return whether the total time is used up."""
        return time.monotonic() - self.started > self.allowed

    def compare(self, part: str, names: Sequence[str], shape: Shape) -> None:
        """Measure some implementations at one shape."""
        about: dict[str, Any] = {
            "shape": shape.name,
            "features": shape.features,
            "batch": shape.batch,
            "hidden": shape.hidden,
            "nodes": shape.nodes,
        }
        entries: list[dict[str, Any]] = []
        contenders: list[Contender] = []
        for name in names:
            entries.append({"part": part, "implementation": name, **about})
            reason = missing(name) or ("out of time" if self.late() else None)
            if reason is not None:
                entries[-1]["skipped"] = reason
                continue
            contenders.append(CONTENDERS[name](shape, self.device))
            entries[-1]["parameters"] = contenders[-1].parameters
        tried = [entry for entry in entries if "skipped" not in entry]
        try:
            for entry, found in zip(tried, getattr(self, part)(contenders), strict=True):
                entry |= found
        except torch.OutOfMemoryError:
            for entry in tried:
                entry["skipped"] = "out of memory"
        for entry in entries:
            self.record("measurements", entry)
        del contenders
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def effort(self, part: str) -> Effort:
        """Return how long a measurement of this part may take."""
        together = 10 if self.device.type == "cuda" and part in ("step", "scaling") else 1
        seconds = EACH[self.device.type][part]
        return (
            Effort(seconds / 3, 5, 3, together) if self.quick else Effort(seconds, 300, 3, together)
        )

    def step(self, contenders: Sequence[Contender]) -> list[dict[str, Any]]:
        """Measure milliseconds per training step; for ours also its share of the ceiling."""
        warm_up = 8 if self.device.type == "cuda" else 1  # the graph is captured in the fourth
        calls = [call for contender in contenders if (call := contender.step()) is not None]
        timings = measure_in_turns(calls, self.device, self.effort("step"), warm_up=warm_up)
        entries = [_timed(timing) for timing in timings]
        for contender, entry, timing in zip(contenders, entries, timings, strict=True):
            if contender.accuracy.startswith("quadrature"):
                own = contender.shape  # with the frequencies it has
                entry["flops"] = step_flops(own.model(), own.batch, own.nodes)
                entry["tflops_per_second"] = entry["flops"] / timing.seconds / 1e12
                if self.ceiling is not None:
                    entry["fraction_of_ceiling"] = entry["flops"] / timing.seconds / self.ceiling
        return entries

    def score(self, contenders: Sequence[Contender]) -> list[dict[str, Any]]:
        """Measure rows scored per second."""
        return [self._score(contender) for contender in contenders]

    def _score(self, contender: Contender) -> dict[str, Any]:
        kind = self.device.type
        rows = contender.shape.rows(MOST_ROWS[kind], seed=1).to(self.device)
        effort = self.effort("score")
        chosen = rows_for(
            lambda count: contender.score(rows[:count]),
            self.device,
            seconds=effort.seconds / 2,
            first=FIRST_ROWS[kind],
            most=MOST_ROWS[kind],
        )
        timing = measure(lambda: contender.score(rows[:chosen]), self.device, effort)
        return {
            **_timed(timing),
            "rows": chosen,
            "rows_per_second": chosen / timing.seconds,
            "accuracy": contender.accuracy,
            **contender.about(rows[: FIRST_ROWS[kind]]),
        }

    def sample(self, contenders: Sequence[Contender]) -> list[dict[str, Any]]:
        """Measure rows drawn per second."""
        return [self._sample(contender) for contender in contenders]

    def _sample(self, contender: Contender) -> dict[str, Any]:
        kind = self.device.type
        effort = self.effort("sample")
        rows = rows_for(
            contender.sample,
            self.device,
            seconds=effort.seconds / 2,
            first=16 * FIRST_ROWS[kind],
            most=MOST_ROWS[kind],
        )
        timing = measure(lambda: contender.sample(rows), self.device, effort)
        return {**_timed(timing), "rows": rows, "rows_per_second": rows / timing.seconds}

    def scale(self) -> None:
        """Measure the exponents of the cost."""
        effort = self.effort("scaling")
        for letter in ("D", "B", "S"):
            if not self.late():
                self.record("scaling", energy_scaling(letter, self.device, effort))
        if not self.late():
            self.record("scaling", row_scaling(self.device, effort))

    def show(self) -> None:
        """Print the tables."""
        columns = {
            "step": ("ms", "a training step, ms", True),
            "score": ("rows_per_second", "rows scored per second", False),
            "sample": ("rows_per_second", "rows drawn per second", False),
        }
        for part, (key, title, smaller) in columns.items():
            entries = [e for e in self.result["measurements"] if e["part"] == part]
            if not entries:
                continue
            table = Table(title=title)
            for heading in ("shape", "implementation", key, "× textbook", "peak MiB", "note"):
                table.add_column(heading)
            for e in entries:
                base: dict[str, Any] = next(
                    (
                        t
                        for t in entries
                        if t["implementation"] == "textbook" and t["shape"] == e["shape"]
                    ),
                    {},
                )
                ratio = ""
                if key in e and key in base:
                    faster = base[key] / e[key] if smaller else e[key] / base[key]
                    ratio = f"{faster:.1f}"
                peak = e.get("peak_bytes")
                share = e.get("fraction_of_ceiling")
                note = e.get("skipped") or e.get("accuracy") or ""
                if share is not None:
                    note = f"{100 * share:.1f} % of the ceiling"
                table.add_row(
                    e["shape"],
                    e["implementation"],
                    _short(e[key]) if key in e else "",
                    ratio,
                    "" if peak is None else f"{peak / 2**20:.0f}",
                    note,
                )
            self.console.print(table)
        if self.result["scaling"]:
            table = Table(title="growth of the cost of ours")
            for heading in ("against", "what", "sizes", "ms", "exponent", "peak MiB"):
                table.add_column(heading)
            for e in self.result["scaling"]:
                peaks = ", ".join("?" if p is None else f"{p / 2**20:.0f}" for p in e["peak_bytes"])
                fitted = "" if e["exponent"] is None else f"{e['exponent']:.2f}"
                sizes, times = _short(e["sizes"]), _short(e["ms"])
                table.add_row(e["against"], e["what"], sizes, times, fitted, peaks)
            self.console.print(table)
        self.console.print(f"{self.out}, {self.result.get('seconds', 0):.0f} s")


def _timed(timing: Timing) -> dict[str, Any]:
    return {
        "ms": 1e3 * timing.seconds,
        "ms_quartiles": [1e3 * timing.low, 1e3 * timing.high],
        "repetitions": timing.repetitions,
        "peak_bytes": timing.peak_bytes,
    }


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _chosen(text: str, known: Any, what: str, parser: argparse.ArgumentParser) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"unknown {what} {', '.join(unknown)}; known: {', '.join(known)}")
    return names


def worth_comparing(part: str, name: str, shape: str) -> bool:
    """Return whether to measure: flows have another loss, and compiling is measured at two shapes."""
    if name == "ours torch.compile":
        return part == "step" and shape in COMPILED
    return part != "step" or not name.startswith("zuko")


def main() -> None:
    """Measure everything, write the result and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--implementations", default=",".join(CONTENDERS))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--threads", type=int, help="of the processor; torch's choice if not given")
    parser.add_argument("--seconds", type=float, help="for everything")
    parser.add_argument("--out", type=Path, help="default: results/bench/<device>.json")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = choose_device(arguments.device)
    shapes = _chosen(arguments.shapes, SHAPES, "shape", parser)
    names = _chosen(arguments.implementations, CONTENDERS, "implementation", parser)
    parts = _chosen(arguments.parts, PARTS, "part", parser)
    bench = Bench(
        device,
        arguments.out or Path("results/bench") / f"{slug(device)}.json",
        quick=arguments.quick,
        allowed=arguments.seconds or ALLOWED[device.type],
    )
    for part in parts:
        if part == "scaling":
            bench.scale()
            continue
        # Steps take turns on a CPU, which other processes may slow down; on a GPU each runs alone, so
        # that its memory can be measured.
        together = part == "step" and device.type == "cpu"
        for shape in shapes:
            compared = [name for name in names if worth_comparing(part, name, shape)]
            for group in [compared] if together else [[name] for name in compared]:
                bench.compare(part, group, SHAPES[shape])
    bench.show()


if __name__ == "__main__":
    main()
