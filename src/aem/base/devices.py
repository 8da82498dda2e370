"""The choice of the device, and of the precision of matrix products."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from aem.errors import AemError


def choose_device(name: str) -> torch.device:
    """Return the named device, or the best there is for "auto".

    Parameters
    ----------
    name
        "auto", "cpu", "cuda" or, where there are several, "cuda:1".
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise AemError(f"unknown device '{name}'; try auto, cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise AemError(f"device '{name}' is not one aem computes on; try auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise AemError("device 'cuda' was asked for but no CUDA device is available")
    return device


def use_bfloat16(precision: str, device: torch.device) -> bool:
    """Return whether matrix products are in bfloat16, which is the default on a GPU.

    Parameters
    ----------
    precision
        "auto", "float32" or "bfloat16", as in `TrainConfig`.
    device
        where the training runs.
    """
    return precision == "bfloat16" or (precision == "auto" and device.type == "cuda")


@contextmanager
def cudnn(flag: str, value: bool) -> Iterator[None]:
    """Set a flag of cuDNN within the context.

    Parameters
    ----------
    flag
        its name in `torch.backends.cudnn`.
    value
        what it is set to.
    """
    before = getattr(torch.backends.cudnn, flag)
    setattr(torch.backends.cudnn, flag, value)
    try:
        yield
    finally:
        setattr(torch.backends.cudnn, flag, before)
