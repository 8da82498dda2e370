"""torch.compile for parts of a model during training."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def compiled(parts: Iterable[nn.Module], *, enabled: bool) -> Iterator[None]:
    """Compile modules within the context, which fuses the memory-bound operations between products.

    Modules and their parameter names stay the same. Where compiling fails, such as without a
    compiler, PyTorch says so and runs them uncompiled.
    """
    if not enabled:
        yield
        return
    chosen = tuple(parts)
    for part in chosen:
        part.compile(dynamic=False)
    try:
        with torch._dynamo.config.patch(suppress_errors=True):
            yield
    finally:
        for part in chosen:
            part._compiled_call_impl = None
