"""Parts of a model through torch.compile while they train."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def compiled(parts: Iterable[nn.Module], *, enabled: bool) -> Iterator[None]:
    """Let torch.compile merge what lies between products, which waits for memory otherwise.

    In place and only for a while: what is trained is the same module with the same names. Where nothing
    can be compiled, for want of a compiler, say, PyTorch tells so and goes on without.
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
