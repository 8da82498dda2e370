"""Random numbers that do not depend on the number of threads.

PyTorch has one generator for the whole process, and threads would take numbers from it in an order
that changes from run to run. Within `drawing_from` a thread uses a generator of its own.
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
    """Let this thread draw from a generator of its own, with a seed, within the context.

    Parameters
    ----------
    seed
        seed of the generator.
    device
        device of the generator; those of other devices are not changed.
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
    """Seed PyTorch's generator within the context, and restore its state afterwards.

    Parameters
    ----------
    seed
        the seed; None changes nothing.
    device
        device whose generator is seeded, besides that of the CPU.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices, enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def generator(device: str = "cpu") -> torch.Generator | None:
    """Return the generator that this thread uses on a device; None stands for PyTorch's.

    Parameters
    ----------
    device
        "cpu" or "cuda".
    """
    own: torch.Generator | None = getattr(_here, "generator", None)
    return own if own is not None and own.device.type == device else None


def seeds(count: int) -> list[int]:
    """Draw seeds for other generators.

    Parameters
    ----------
    count
        how many seeds, one per stream.
    """
    drawn: list[int] = torch.randint(2**62, (count,), generator=generator()).tolist()
    return drawn


def uniforms(shape: Sequence[int], like: Tensor) -> Float[Tensor, "..."]:
    """Draw uniforms on [0, 1) from the generator of this thread.

    Parameters
    ----------
    shape
        shape of the result.
    like
        a tensor of the type and device that they will have.
    """
    own = generator(like.device.type)
    return torch.rand(tuple(shape), dtype=like.dtype, device=like.device, generator=own)


def some_rows(rows: NDArray[np.float64], most: int, seed: int = 0) -> NDArray[np.float64]:
    """Draw rows without replacement, or return all rows if there are not more than asked for.

    Parameters
    ----------
    rows
        rows [B, D].
    most
        how many rows are drawn, at most.
    seed
        seed of the draw.
    """
    if len(rows) <= most:
        return rows
    return rows[np.random.default_rng(seed).choice(len(rows), most, replace=False)]


def dropout(t: Float[Tensor, "*B"], rate: float, *, training: bool) -> Float[Tensor, "*B"]:
    """Apply dropout by the generator of this thread, which PyTorch's function cannot use.

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
