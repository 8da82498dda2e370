"""Parts of a model through torch.compile while they train."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def compiled(parts: Iterable[nn.Module], *, enabled: bool) -> Iterator[None]:
    """Let torch.compile merge what lies between products, which waits for memory otherwise.

    In place and only for a while: what is trained is the same module with the same names.
    """
    chosen = tuple(parts) if enabled else ()
    for part in chosen:
        part.compile(dynamic=False)
    try:
        yield
    finally:
        for part in chosen:
            part._compiled_call_impl = None
