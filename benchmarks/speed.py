"""How fast? Ours beside the textbook and zuko's flows, in one run.

    python benchmarks/speed.py [--device cuda] [--quick] [--parts step,score,sample,scaling]

Prints tables and writes results/bench/<device>.json after every measurement, so that a run that is
cut short keeps what it has. What does not fit into the time allowed is listed as skipped.
"""

import argparse
import gc
import re
import time
from pathlib import Path
from typing import Any

import torch
from arithmetic import product_ceiling, step_flops
from contenders import CONTENDERS, SHAPES, Contender, Shape, missing
from measuring import Effort, Timing, measure, rows_for
from rich.console import Console
from rich.table import Table
from scaling import energy_scaling, row_scaling

from aem.config import TrainConfig
from aem.io import write_json
from aem.provenance import provenance
from aem.training.loop import choose_device

PARTS = ("step", "score", "sample", "scaling")
ALLOWED = {"cpu": 570.0, "cuda": 225.0}  # seconds for everything
# Seconds for one measurement.
EACH = {
    "cpu": {"step": 6.0, "score": 4.0, "sample": 4.0, "scaling": 2.0},
    "cuda": {"step": 1.5, "score": 2.0, "sample": 2.0, "scaling": 0.5},
}
FIRST_ROWS = {"cpu": 2, "cuda": 64}
MOST_ROWS = {"cpu": 2**13, "cuda": 2**17}


def slug(device: torch.device) -> str:
    """A file name for the device."""
    if device.type == "cpu":
        return "cpu"
    name = torch.cuda.get_device_name(device).lower().removeprefix("nvidia ")
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


class Bench:
    """A run: what is measured goes into the result file at once."""

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
        """Add an entry, write the file, and say so."""
        self.result[where].append(entry)
        self.result["seconds"] = time.monotonic() - self.started
        write_json(self.out, self.result)
        shown = {k: v for k, v in entry.items() if isinstance(v, str | int | float | list)}
        self.console.print(" ".join(f"{k}={_short(v)}" for k, v in shown.items()), highlight=False)

    def late(self) -> bool:
        """Whether the time for everything is spent."""
        return time.monotonic() - self.started > self.allowed

    def compare(self, part: str, name: str, shape: Shape) -> None:
        """One implementation at one shape."""
        entry: dict[str, Any] = {
            "part": part,
            "implementation": name,
            "shape": shape.name,
            "features": shape.features,
            "batch": shape.batch,
            "hidden": shape.hidden,
            "nodes": shape.nodes,
        }
        reason = missing(name) or ("out of time" if self.late() else None)
        if reason is None:
            try:
                contender = CONTENDERS[name](shape, self.device)
                entry["parameters"] = contender.parameters
                entry |= getattr(self, part)(contender)
            except torch.OutOfMemoryError:
                reason = "out of memory"
        if reason is not None:
            entry["skipped"] = reason
        self.record("measurements", entry)
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def effort(self, part: str) -> Effort:
        """How long a measurement of this part may last."""
        together = 10 if self.device.type == "cuda" and part in ("step", "scaling") else 1
        seconds = EACH[self.device.type][part]
        return (
            Effort(seconds / 3, 5, 3, together) if self.quick else Effort(seconds, 300, 3, together)
        )

    def step(self, contender: Contender) -> dict[str, Any]:
        """Milliseconds a training step; for ours, its arithmetic against the ceiling."""
        call = contender.step()
        if call is None:
            return {"skipped": "not compared"}
        warm_up = 8 if self.device.type == "cuda" else 1  # the graph is captured in the fourth
        timing = measure(call, self.device, self.effort("step"), warm_up=warm_up)
        entry = _timed(timing)
        if contender.accuracy.startswith("quadrature"):
            own = contender.shape  # with the frequencies it has
            entry["flops"] = step_flops(own.model(), own.batch, own.nodes)
            entry["tflops_per_second"] = entry["flops"] / timing.seconds / 1e12
            if self.ceiling is not None:
                entry["fraction_of_ceiling"] = entry["flops"] / timing.seconds / self.ceiling
        return entry

    def score(self, contender: Contender) -> dict[str, Any]:
        """Rows scored a second, to the accuracy the implementation states."""
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
        timing = measure(lambda: contender.score(rows[:chosen]), self.device, effort, warm_up=0)
        return {
            **_timed(timing),
            "rows": chosen,
            "rows_per_second": chosen / timing.seconds,
            "accuracy": contender.accuracy,
            **contender.about(rows[: FIRST_ROWS[kind]]),
        }

    def sample(self, contender: Contender) -> dict[str, Any]:
        """Rows drawn a second."""
        kind = self.device.type
        effort = self.effort("sample")
        rows = rows_for(
            contender.sample,
            self.device,
            seconds=effort.seconds / 2,
            first=16 * FIRST_ROWS[kind],
            most=MOST_ROWS[kind],
        )
        timing = measure(lambda: contender.sample(rows), self.device, effort, warm_up=0)
        return {**_timed(timing), "rows": rows, "rows_per_second": rows / timing.seconds}

    def scale(self) -> None:
        """Exponents."""
        effort = self.effort("scaling")
        for letter in ("D", "B", "S"):
            if not self.late():
                self.record("scaling", energy_scaling(letter, self.device, effort))
        if not self.late():
            self.record("scaling", row_scaling(self.device, effort))

    def show(self) -> None:
        """The tables."""
        columns = {
            "step": ("ms", "a training step, ms", True),
            "score": ("rows_per_second", "rows scored a second", False),
            "sample": ("rows_per_second", "rows drawn a second", False),
        }
        for part, (key, title, smaller) in columns.items():
            entries = [e for e in self.result["measurements"] if e["part"] == part]
            if not entries:
                continue
            table = Table(title=title)
            for heading in ("shape", "implementation", key, "× textbook", "peak MiB", "note"):
                table.add_column(heading)
            for e in entries:
                base = next(
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


def main() -> None:
    """Measure, write and show."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    usual = ",".join(name for name in CONTENDERS if name != "ours torch.compile")
    parser.add_argument("--implementations", default=usual)
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
        for shape in shapes:
            for name in names:
                if part != "step" or not name.startswith("zuko"):
                    bench.compare(part, name, SHAPES[shape])
    bench.show()


if __name__ == "__main__":
    main()
