"""How the cost of training and scoring grows with the size of the problem.

Training is measured against features, batch and nodes, and scoring against rows. A fitted exponent
of one means a cost in proportion to the size.

The time of the energy is the time of a step minus that of the same step with the proposal alone (a
step of the warm-up: ARNN, mixture, optimiser), which grows with D and H in another way.
"""

import dataclasses
from functools import partial
from typing import Any

import torch

from aem.conditionals.normalizer import Quadrature
from benchmarks.speed.contenders import Ours, Shape
from benchmarks.speed.measuring import Effort, exponent, measure, synchronise

# A GPU needs larger sizes than a CPU to be busy.
BASE = {
    "cpu": Shape("scaling", 8, 64, 128),
    "cuda": Shape("scaling", 32, 512, 512),
}
SIZES = {
    "cpu": {"D": (4, 8, 16, 32), "B": (32, 64, 128, 256), "S": (10, 20, 40, 80)},
    "cuda": {"D": (16, 32, 64, 128), "B": (256, 512, 1024, 2048), "S": (10, 20, 40, 80)},
}
FIELD = {"D": "features", "B": "batch", "S": "nodes"}
ROWS = {"cpu": (300, 600, 1200, 2400), "cuda": (8000, 16000, 32000, 64000)}
# Far below the memory of all rows at once, so that the budget is the limit.
SCORING_MEMORY = {"cpu": 2**23, "cuda": 2**27}


def sized(shape: Shape, letter: str, size: int) -> Shape:
    """Return the shape with another value of the size that the letter names."""
    changed: dict[str, Any] = {FIELD[letter]: size}
    return dataclasses.replace(shape, **changed)


def energy_scaling(letter: str, device: torch.device, effort: Effort) -> dict[str, Any]:
    """Measure milliseconds of the energy in a step against one size."""
    sizes = SIZES[device.type][letter]
    warm_up = 8 if device.type == "cuda" else 1
    whole, proposal, peaks = [], [], []
    for size in sizes:
        ours = Ours(sized(BASE[device.type], letter, size), device)
        without = measure(ours.step(proposal_only=True), device, effort, warm_up=warm_up)
        timing = measure(ours.step(), device, effort, warm_up=warm_up)
        whole.append(1e3 * timing.seconds)
        proposal.append(1e3 * without.seconds)
        peaks.append(timing.peak_bytes)
        del ours
    energy = [w - p for w, p in zip(whole, proposal, strict=True)]
    return {
        "against": letter,
        "what": "energy part of a training step",
        "base": dataclasses.asdict(BASE[device.type]),
        "sizes": list(sizes),
        "ms": energy,
        "step_ms": whole,
        "exponent": exponent(sizes, energy),
        "step_exponent": exponent(sizes, whole),
        "peak_bytes": peaks,
    }


def row_scaling(device: torch.device, effort: Effort) -> dict[str, Any]:
    """Measure milliseconds and peak memory of scoring against the number of rows."""
    shape = Shape("plane", 2, 256, 256)
    ours = Ours(shape, device)
    ours.settings = Quadrature(
        tolerance=ours.settings.tolerance, memory=SCORING_MEMORY[device.type]
    )
    sizes = ROWS[device.type]
    rows = shape.rows(max(sizes), seed=1).to(device)
    ours.score(rows[: sizes[0]])
    synchronise(device)
    few = dataclasses.replace(effort, most=3, together=1)
    timings = [measure(partial(ours.score, rows[:size]), device, few) for size in sizes]
    times = [1e3 * timing.seconds for timing in timings]
    return {
        "against": "rows",
        "what": "scoring",
        "base": dataclasses.asdict(shape),
        "memory_budget_bytes": SCORING_MEMORY[device.type],
        "sizes": list(sizes),
        "ms": times,
        "exponent": exponent(sizes, times),
        "peak_bytes": [timing.peak_bytes for timing in timings],
    }
