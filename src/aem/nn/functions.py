"""Functions of PyTorch that, on a processor, treat the last numbers of a tensor unlike the others.

They take numbers by the dozen, and what is left over one by one, with another rounding. A number's
result then depends on where it stands. These are composed of functions that do not.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def _indifferent(x: Tensor) -> bool:
    """Return whether a number's result must not depend on its place: in scores, not in training."""
    return x.device.type == "cpu" and not (torch.is_grad_enabled() and x.requires_grad)


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp x), whatever stands beside x.

    Parameters
    ----------
    x
        any numbers.
    """
    if not _indifferent(x):
        return F.softplus(x)
    return x.abs().neg_().exp_().log1p_().add_(x.clamp_min(0))


def sigmoid(x: Tensor) -> Tensor:
    """Return 1 / (1 + exp −x), whatever stands beside x.

    Parameters
    ----------
    x
        any numbers.
    """
    if not _indifferent(x):
        return torch.sigmoid(x)
    return x.neg().exp_().add_(1).reciprocal_()


def elu(x: Tensor) -> Tensor:
    """Return x above zero and exp x − 1 below, whatever stands beside x.

    Parameters
    ----------
    x
        any numbers.
    """
    if not _indifferent(x):
        return F.elu(x)
    return torch.where(x > 0, x, x.clamp_max(0).exp_().sub_(1))


def gelu(x: Tensor) -> Tensor:
    """Return x Φ(x), with the normal distribution function, whatever stands beside x.

    Parameters
    ----------
    x
        any numbers.
    """
    if not _indifferent(x):
        return F.gelu(x)
    return torch.erf(x * math.sqrt(0.5)).add_(1).mul_(x).mul_(0.5)
