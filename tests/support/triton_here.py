"""Kernels are tested on the GPU where there is one, else by Triton's interpreter on the processor."""

import builtins
import os
from typing import Any

import pytest
import torch

GPU = torch.cuda.is_available()
if not GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported
pytest.importorskip("triton", reason="Triton is not installed")
DEVICE = torch.device("cuda" if GPU else "cpu")
KIND = torch.bfloat16 if GPU else torch.float32  # the interpreter has no bfloat16


class AnyInt(type):
    """Integers of all kinds are instances."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int)


class Scalar(int, metaclass=AnyInt):
    """`int` for the interpreter, whose scalars are arrays of one number: recent NumPy refuses those."""

    def __new__(cls, value: Any) -> int:  # type: ignore[misc]
        return builtins.int(value.item() if hasattr(value, "item") else value)


if not GPU:
    from triton.runtime import interpreter

    interpreter.int = Scalar
