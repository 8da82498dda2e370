"""Kernels run on a GPU where there is one, else in Triton's interpreter where Triton is installed."""

import os
from importlib.util import find_spec

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported

collect_ignore = [] if find_spec("triton") else ["test_energy.py", "test_mixture.py"]


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
