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
    """Let what this thread draws on a device depend on a seed alone, for the time of the context.

    Parameters
    ----------
    seed
        of the stream.
    device
        where it draws; streams of other devices are left alone.
    """
    before = getattr(_here, "generator", None)
    _here.generator = torch.Generator(device).manual_seed(seed)
    try:
        yield
    finally:
        _here.generator = before


@contextmanager
def streaming_from(own: torch.Generator | None) -> Iterator[None]:
    """Let this thread's streams follow from a generator of a user's, for the time of the context.

    Parameters
    ----------
    own
        the generator, on any device, from which one number is drawn; None changes nothing.
    """
    if own is None:
        yield
        return
    seed = torch.randint(2**62, (), generator=own, device=own.device)
    with drawing_from(int(seed)):
        yield


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Let PyTorch's stream begin at a seed; afterwards it goes on where it was.

    Parameters
    ----------
    seed
        of the stream; None leaves it alone.
    device
        whose stream is meant besides the CPU's.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices, enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def generator(device: str = "cpu") -> torch.Generator | None:
    """Return the stream that this thread draws from on a device; None is PyTorch's own.

    Parameters
    ----------
    device
        "cpu" or "cuda".
    """
    own: torch.Generator | None = getattr(_here, "generator", None)
    return own if own is not None and own.device.type == device else None


def seeds(count: int) -> list[int]:
    """Draw seeds for so many streams from the present one.

    Parameters
    ----------
    count
        how many seeds, one per stream.
    """
    drawn: list[int] = torch.randint(2**62, (count,), generator=generator()).tolist()
    return drawn


def uniforms(shape: Sequence[int], like: Tensor) -> Float[Tensor, "..."]:
    """Draw uniforms on [0, 1) from the present stream.

    Parameters
    ----------
    shape
        of the result.
    like
        a tensor of the type and device that they will have.
    """
    own = generator(like.device.type)
    return torch.rand(tuple(shape), dtype=like.dtype, device=like.device, generator=own)


def some_rows(rows: NDArray[np.float64], most: int, seed: int = 0) -> NDArray[np.float64]:
    """Draw rows without replacement; all of them come back as they are if there are no more.

    Parameters
    ----------
    rows
        rows [B, D].
    most
        how many rows are drawn, at most.
    seed
        of the draw.
    """
    if len(rows) <= most:
        return rows
    return rows[np.random.default_rng(seed).choice(len(rows), most, replace=False)]


def dropout(t: Float[Tensor, "*B"], rate: float, *, training: bool) -> Float[Tensor, "*B"]:
    """Apply dropout from the present stream; PyTorch's own function knows no stream but PyTorch's.

    Parameters
    ----------
    t
        activations of a layer, of any shape.
    rate
        the share of them that is left out.
    training
        whether any is; in evaluation the activations come back as they are.
    """
    own = generator(t.device.type)
    if own is None or not training or not rate:
        return torch.nn.functional.dropout(t, rate, training)
    kept = torch.empty_like(t).bernoulli_(1 - rate, generator=own)
    return t * kept.div_(1 - rate)
