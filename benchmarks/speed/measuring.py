"""Clocks and scales: how long a call takes and how much memory, without outstaying its time."""

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
    """How long one measurement may last, and how often it repeats within that."""

    seconds: float
    most: int = 300
    least: int = 3
    together: int = 1  # calls between two looks at the clock: hides what looking costs a GPU


@dataclass(frozen=True)
class Timing:
    """Seconds a call: median and quartiles; and the bytes it needed at most."""

    seconds: float
    low: float
    high: float
    repetitions: int
    peak_bytes: int | None


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(
    call: Callable[[], object], device: torch.device, effort: Effort, *, warm_up: int = 1
) -> Timing:
    """One call, again and again."""
    return measure_in_turns([call], device, effort, warm_up=warm_up)[0]


def measure_in_turns(
    calls: Sequence[Callable[[], object]],
    device: torch.device,
    effort: Effort,
    *,
    warm_up: int = 1,
) -> list[Timing]:
    """One call after the other, round after round: what slows a machine for a while slows all alike.

    Until the time is up, but at least a few rounds unless a single one takes all of it. The clock runs
    between two synchronisations around whole groups of calls, so that the time is what a loop over
    calls takes: device, launches and host work, whichever is slowest.
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
    """How many rows a call should treat to last about so long, found by growing from a few.

    On a GPU a call takes its time however few they are: as long as four times as many take less than
    twice as long, rows are not what is measured.
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
    """Bytes above what was in use at the beginning; none where the system does not say.

    On Linux the kernel keeps the process's high-water mark, which may be reset; freed memory that
    the allocator still holds must be given back first, or it would hide what the next call takes.
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
        """The most in use since then."""
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
    """b of the least-squares fit time = a · size^b; none where a time is not positive."""
    if len(sizes) < 2 or min(times) <= 0:
        return None
    x, y = [math.log(s) for s in sizes], [math.log(t) for t in times]
    return statistics.linear_regression(x, y).slope
