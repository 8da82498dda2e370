"""Random numbers: PyTorch's own stream, or one that belongs to a piece of work.

PyTorch has one stream for the whole process. Pieces of work that run side by side would take
numbers from it in an order that changes from run to run; within `drawing_from`, what a thread draws
comes from a stream of its own.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

_here = threading.local()


@contextmanager
def drawing_from(seed: int, device: str | torch.device = "cpu") -> Iterator[None]:
    """What this thread draws on the device depends on the seed alone."""
    before = getattr(_here, "generator", None)
    _here.generator = torch.Generator(device).manual_seed(seed)
    try:
        yield
    finally:
        _here.generator = before


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Within, PyTorch's stream begins at the seed; afterwards it goes on where it was.

    Without a seed it is left alone.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices, enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def generator(device: str = "cpu") -> torch.Generator | None:
    """The stream this thread draws from on such a device; None is PyTorch's own."""
    own: torch.Generator | None = getattr(_here, "generator", None)
    return own if own is not None and own.device.type == device else None


def seeds(count: int) -> list[int]:
    """Seeds of so many streams, from the present one."""
    drawn: list[int] = torch.randint(2**62, (count,), generator=generator()).tolist()
    return drawn


def uniforms(shape: Sequence[int], like: Tensor) -> Float[Tensor, "..."]:
    """Uniforms on [0, 1) of a tensor's type, on its device."""
    own = generator(like.device.type)
    return torch.rand(tuple(shape), dtype=like.dtype, device=like.device, generator=own)


def some_rows(rows: NDArray[np.float64], most: int, seed: int = 0) -> NDArray[np.float64]:
    """At most so many rows, drawn without replacement, or all of them as they are."""
    if len(rows) <= most:
        return rows
    return rows[np.random.default_rng(seed).choice(len(rows), most, replace=False)]


def dropout(t: Float[Tensor, "*B"], rate: float, *, training: bool) -> Float[Tensor, "*B"]:
    """`torch.nn.functional.dropout`, which knows no stream but PyTorch's own."""
    own = generator(t.device.type)
    if own is None or not training or not rate:
        return torch.nn.functional.dropout(t, rate, training)
    kept = torch.empty_like(t).bernoulli_(1 - rate, generator=own)
    return t * kept.div_(1 - rate)
