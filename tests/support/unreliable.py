"""A linear algebra that keeps no promise that a BLAS does not make either."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aem.base import threads

PRODUCTS = {
    "mm", "addmm", "addmm_", "mv", "addmv", "addmv_", "bmm", "baddbmm", "baddbmm_", "dot", "vdot",
    "matmul", "linear", "einsum", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_attention_math",
}  # fmt: skip


class UnreliableProducts(TorchDispatchMode):
    """Every product is off by up to 1e-6: by how much depends on its shape and the number of threads.

    The rows of a product therefore depend on how many rows it has.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in PRODUCTS:
            product = found[0] if isinstance(found, tuple) else found
            batched = "bmm" in func.overloadpacket.__name__  # of products, each as if it were alone
            shape = product.shape[1:] if batched else product.shape
            size = sum((k + 1) * n for k, n in enumerate(shape))
            product.mul_(
                1 + 1e-6 * math.fmod(0.7548776662 * size + 0.57 * torch.get_num_threads(), 1)
            )
        return found


@contextmanager
def unreliable_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On this thread and on those of the library's pool."""
    pools: dict[int, Any] = {}
    begin, modes = threads._begin, []

    def begin_unreliably() -> None:
        begin()
        modes.append(UnreliableProducts())  # type: ignore[no-untyped-call]
        modes[-1].__enter__()  # type: ignore[no-untyped-call]

    with monkeypatch.context() as patch:
        patch.setattr(threads, "_pools", pools)
        patch.setattr(threads, "_begin", begin_unreliably)
        with UnreliableProducts():  # type: ignore[no-untyped-call]
            yield
        for pool in pools.values():
            pool.shutdown()
