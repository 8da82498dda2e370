"""Activations whose results on a CPU do not depend on the position in the tensor.

PyTorch's own softplus, sigmoid and gelu process numbers in vectors, and the last few of a tensor one
by one with another rounding. Here they are composed of functions without this difference.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def _indifferent(x: Tensor) -> bool:
    """Return whether results must not depend on the position: in scores, but not in training."""
    return x.device.type == "cpu" and not (torch.is_grad_enabled() and x.requires_grad)


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp x), independent of the position of x.

    Parameters
    ----------
    x
        any numbers.
    """
    if not _indifferent(x):
        return F.softplus(x)
    return x.abs().neg_().exp_().log1p_().add_(x.clamp_min(0))


def sigmoid(x: Tensor) -> Tensor:
    """Return 1 / (1 + exp −x), independent of the position of x.

    Parameters
    ----------
    x
        any numbers.
    """
    if not _indifferent(x):
        return torch.sigmoid(x)
    return x.neg().exp_().add_(1).reciprocal_()


def elu(x: Tensor) -> Tensor:
    """Return x above zero and exp x − 1 below, independent of the position of x.

    Parameters
    ----------
    x
        any numbers.
    """
    if not _indifferent(x):
        return F.elu(x)
    return torch.where(x > 0, x, x.clamp_max(0).exp_().sub_(1))


def gelu(x: Tensor) -> Tensor:
    """Return x Φ(x), with the normal distribution function, independent of the position of x.

    Parameters
    ----------
    x
        any numbers.
    """
    if not _indifferent(x):
        return F.gelu(x)
    return torch.erf(x * math.sqrt(0.5)).add_(1).mul_(x).mul_(0.5)
