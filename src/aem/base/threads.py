"""The library's own thread pool, which stays fast beside other processes.

PyTorch divides every matrix product among threads that spin while they wait for each other. This is
fast on an idle machine. Beside other processes every product waits for the slowest thread, while the
others spin. Besides, rounding depends on how a product is divided.

In this pool a thread computes a whole task, such as a block of rows, and idle threads sleep. Tasks do
not depend on the number of threads, and therefore results do not either.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

from aem.errors import AemError

VARIABLE = "AEM_THREADS"
AHEAD = 2  # tasks per thread that are submitted ahead

Item = TypeVar("Item")
Result = TypeVar("Result")

_lock = threading.Lock()
_here = threading.local()  # the state of each thread
_chosen: int | None = None
_pools: dict[int, ThreadPoolExecutor] = {}
_inside = 0  # number of contexts of `alone`
_usual = 1  # PyTorch's number of threads outside of them


def set_threads(threads: int | None) -> None:
    """Choose how many threads compute.

    This overrules the environment variable AEM_THREADS, which overrules what suits the machine.
    Results do not depend on the number of threads.

    Parameters
    ----------
    threads
        how many, at least one; None for as many as suit the machine.
    """
    if threads is not None and threads < 1:
        raise AemError(f"the number of threads must be at least 1, not {threads}")
    global _chosen
    _chosen = threads


def get_threads() -> int:
    """Return how many threads compute.

    By default as many as PyTorch would use (`torch.set_num_threads`), but no more than
    the processors this process may run on and the share of them that its container has.
    """
    if _chosen is not None:
        return _chosen
    named = os.environ.get(VARIABLE, "").strip()
    if named:
        if not named.isascii() or not named.isdigit() or int(named) < 1:
            raise AemError(f"{VARIABLE} must be a whole number of threads from 1 on, not '{named}'")
        return int(named)
    with _lock:
        usual = _usual if _inside else torch.get_num_threads()
    return max(min(usual, available()), 1)


def available() -> int:
    """Return how many processors this process may use, of which a container may have a share."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(math.ceil(min(processors, container_quota())), 1)


@cache
def container_quota(
    groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> float:
    """Return how many processors' time control groups allow; infinity for no limit.

    Parameters
    ----------
    groups
        the file that names the groups of this process.
    root
        the folder of all groups.
    """
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    quota = math.inf
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            quota = min(quota, *_quotas(root, path, _quota_of_version_2))
        elif "cpu" in controllers.split(","):  # version 1
            for folder in (root / "cpu", root / controllers):
                quota = min(quota, *_quotas(folder, path, _quota_of_version_1))
    return quota


def _quotas(root: Path, path: str, read: Callable[[Path], float]) -> Iterator[float]:
    """Yield the limits of a control group and of all groups that contain it."""
    yield read(root)
    folder = root
    for part in Path(path.lstrip("/")).parts:
        folder = folder / part
        yield read(folder)


def _quota_of_version_2(folder: Path) -> float:
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


def _quota_of_version_1(folder: Path) -> float:
    try:
        quota, period = (
            int((folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8"))
            for name in ("quota", "period")
        )
        return quota / period if quota > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


@contextmanager
def alone() -> Iterator[None]:
    """Let PyTorch use one thread per operation within the context; also a decorator.

    PyTorch's number of threads is a setting of the process, and partly of each thread. It is one as
    long as any thread is within the context, and then restored.
    """
    global _inside, _usual
    with _lock:
        found = torch.get_num_threads()
        if found != 1:
            _here.before = found
            torch.set_num_threads(1)
        if not _inside:
            # A thread that left while others were inside still has one: use its earlier number.
            _usual = getattr(_here, "before", found)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                if _usual != 1:
                    torch.set_num_threads(_usual)
                _here.__dict__.pop("before", None)


@contextmanager
def libraries_alone() -> Iterator[None]:
    """Do the same for NumPy, SciPy and scikit-learn as well."""
    with alone(), threadpool_limits(1):
        yield


def spread(
    function: Callable[[Item], Result], items: Iterable[Item], *, device: str = "cpu"
) -> Iterator[Result]:
    """Apply a function to items in parallel, one thread per item, and yield results in order.

    Parameters
    ----------
    function
        what is done with an item.
    items
        may be endless: only a few are taken ahead.
    device
        device of the computation; only work on a CPU is distributed.
    """
    if device != "cpu":
        yield from map(function, items)
        return
    threads = 1 if getattr(_here, "worker", False) else get_threads()
    rest = iter(items)
    first = list(islice(rest, 2))
    if threads > 1 and len(first) > 1:
        with alone():
            yield from _by_pool(function, first, rest, threads)
        return
    for item in chain(first, rest):
        with alone():
            result = function(item)
        yield result


def _by_pool(
    function: Callable[[Item], Result], first: list[Item], rest: Iterator[Item], threads: int
) -> Iterator[Result]:
    recording = torch.is_grad_enabled()

    def work(item: Item) -> Result:
        with torch.set_grad_enabled(recording):
            return function(item)

    pool, waiting = _pool(threads), deque[Future[Result]]()
    try:
        for item in first:
            waiting.append(pool.submit(work, item))
        while waiting:
            for item in islice(rest, AHEAD * threads - len(waiting)):
                waiting.append(pool.submit(work, item))
            yield waiting.popleft().result()
    finally:
        # After an error or interruption, cancel waiting tasks and wait for running ones.
        for future in waiting:
            future.cancel()
        for future in waiting:
            if not future.cancelled():
                future.exception()


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, "aem", initializer=_begin)
        return _pools[threads]


def _begin() -> None:
    """Initialise a new thread of the pool."""
    _here.worker = True
    torch.set_num_threads(1)  # as `alone` has it: a thread's own copy of the number


def _forget() -> None:
    """Reset the pool in a forked process, which has one thread only."""
    global _lock, _inside
    _lock, _inside = threading.Lock(), 0
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
