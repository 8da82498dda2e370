"""Measure the time and memory of calls within a time limit."""

import ctypes
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from aem.nn.kernels import processor

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Effort:
    """The time limit of one measurement, and the number of its repetitions."""

    seconds: float
    most: int = 300
    least: int = 3
    together: int = 1  # calls between two looks at the clock: hides what looking costs a GPU


@dataclass(frozen=True)
class Timing:
    """The seconds per call (median and quartiles) and the peak memory in bytes."""

    seconds: float
    low: float
    high: float
    repetitions: int
    peak_bytes: int | None


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(
    call: Callable[[], object], device: torch.device, effort: Effort, *, warm_up: int = 1
) -> Timing:
    """Measure one call repeatedly."""
    return measure_in_turns([call], device, effort, warm_up=warm_up)[0]


def measure_in_turns(
    calls: Sequence[Callable[[], object]],
    device: torch.device,
    effort: Effort,
    *,
    warm_up: int = 1,
) -> list[Timing]:
    """Measure calls in turns, so that a temporary slowdown of the machine affects all alike.

    Rounds are repeated until the time is up, and at least a few times unless a single one takes all
    of it. Time is measured between two synchronisations around groups of calls, so that it is the
    time of a loop over calls, whether the device, the launches or the host is the slowest part.
    """
    peaks = []
    for call in calls:
        memory = PeakMemory(device)  # of the warm-up: a graph allocates when it is captured
        started = time.perf_counter()
        for _ in range(warm_up):
            call()
            synchronise(device)
            if time.perf_counter() - started > effort.seconds / 2:
                break
        peaks.append(memory.bytes())
    times: list[list[float]] = [[] for _ in calls]
    began = time.perf_counter()
    for rounds in range(effort.most):
        spent = (time.perf_counter() - began) / len(calls)
        enough = effort.seconds if rounds >= effort.least else 2 * effort.seconds
        if rounds and spent > enough:
            break
        for call, taken in zip(calls, times, strict=True):
            before = time.perf_counter()
            for _ in range(effort.together):
                call()
            synchronise(device)
            taken.append((time.perf_counter() - before) / effort.together)
    return [_timing(taken, effort.together, peak) for taken, peak in zip(times, peaks, strict=True)]


def _timing(times: list[float], together: int, peak: int | None) -> Timing:
    low, middle, high = (
        statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    )
    return Timing(middle, low, high, len(times) * together, peak)


def rows_for(
    call: Callable[[int], object],
    device: torch.device,
    *,
    seconds: float,
    first: int,
    most: int,
) -> int:
    """Find how many rows a call should have to take about a given time, starting from a few.

    On a GPU a call has a fixed cost, however few the rows are. So the number grows as long as four
    times as many rows take less than twice as long.
    """
    rows, fewer = first, math.inf
    while True:
        call(rows)  # whatever is only slow the first time, at this size too
        synchronise(device)
        before = time.perf_counter()
        call(rows)
        synchronise(device)
        taken = max(time.perf_counter() - before, 1e-6)
        enough = taken > seconds or (taken > seconds / 4 and taken > 2 * fewer)
        if enough or rows >= most:
            return max(min(int(rows * seconds / taken), most), 1)
        rows, fewer = min(4 * rows, most), taken


class PeakMemory:
    """Peak memory above that at the beginning, in bytes; none where the system does not report it.

    On Linux the kernel keeps the highest memory use of a process, which can be reset. Freed memory
    that the allocator still holds must be returned first, or it would hide the memory of the next
    call.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        gc.collect()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self.before: int | None = 0  # weights and graphs belong to what a step needs
            return
        processor.release()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
            CLEAR_REFS.write_text("5")
        self.before = self._resident("VmRSS")

    def bytes(self) -> int | None:
        """Return the peak since the beginning."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = self._resident("VmHWM")
        return None if peak is None or self.before is None else max(peak - self.before, 0)

    @staticmethod
    def _resident(field: str) -> int | None:
        if not STATUS.is_file():
            return None
        lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        return int(lines[field].split()[0]) * 1024


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float | None:
    """Return b of the least-squares fit time = a · size^b; none where a time is not positive."""
    if len(sizes) < 2 or min(times) <= 0:
        return None
    x, y = [math.log(s) for s in sizes], [math.log(t) for t in times]
    return statistics.linear_regression(x, y).slope
