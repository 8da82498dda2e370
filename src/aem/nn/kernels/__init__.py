"""Fused kernels, and the conditions under which they replace the same operations of PyTorch.

The implementation in PyTorch is the reference. A kernel is used for CUDA tensors in a bfloat16
training step, if Triton is installed and the kernel supports the shape and the activation.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None
WIDTHS = (32, 64, 128, 256)  # of the energy network
MOST_POINTS = 128  # of a conditional
MOST_COMPONENTS = MOST_NODES = 64  # of the mixture
ACTIVATIONS = ("relu", "tanh")  # that kernels know; of others they must not be told


def is_tanh(activation: str) -> bool:
    """Return whether an activation is tanh; kernels support tanh and ReLU.

    Parameters
    ----------
    activation
        "relu" or "tanh"; others are refused.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"no kernel knows the activation '{activation}'")
    return activation == "tanh"


def applied(function: Any, *arguments: Any) -> Any:
    """Apply an autograd function, with a return type, which `apply` of PyTorch lacks.

    Parameters
    ----------
    function
        a subclass of `torch.autograd.Function`.
    arguments
        what its `forward` takes after the context.
    """
    return function.apply(*arguments)


def in_mixed_precision(x: Tensor) -> bool:
    """Return whether a step runs in bfloat16 on a CUDA device, and Triton is installed.

    Parameters
    ----------
    x
        a tensor of the step.
    """
    return TRITON and x.is_cuda and x.dtype == torch.float32 and _autocast_bfloat16()


def _autocast_bfloat16() -> bool:
    return torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16


def fuses_energy(x: Tensor, hidden: int, blocks: int, activation: str) -> bool:
    """Return whether the energy network's kernels can be used in training.

    Parameters
    ----------
    x
        nodes [..., S], which are constants to the kernels.
    hidden
        width of the network.
    blocks
        how many residual blocks it has.
    activation
        its activation.
    """
    usual = hidden in WIDTHS and blocks > 0 and x.shape[-1] <= MOST_POINTS
    known = activation in ACTIVATIONS
    return in_mixed_precision(x) and usual and known and not x.requires_grad


def fuses_inference(x: Tensor, hidden: int, blocks: int, activation: str) -> bool:
    """Return whether the float32 kernel of the energy network can be used, for scores and samples.

    Parameters
    ----------
    x
        nodes [..., S].
    hidden
        width of the network.
    blocks
        how many residual blocks it has.
    activation
        its activation.
    """
    narrow = hidden in WIDTHS and hidden < 256 and blocks > 0
    plain = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda")
    known = activation in ACTIVATIONS
    return TRITON and x.is_cuda and x.numel() > 0 and narrow and known and plain


def fuses_mixture(x: Tensor, components: int, nodes: int) -> bool:
    """Return whether the mixture's kernels can be used.

    Parameters
    ----------
    x
        values, which are constants to the kernels.
    components
        K of the mixture.
    nodes
        how many points are drawn or evaluated per mixture.
    """
    small = 1 < components <= MOST_COMPONENTS and 0 < nodes <= MOST_NODES
    return in_mixed_precision(x) and small and not x.requires_grad


def fuses_resmade(x: Tensor, hidden: int, blocks: int, activation: str) -> bool:
    """Return whether ResMADE's kernels can be used.

    Parameters
    ----------
    x
        rows, which are constants to the kernels.
    hidden
        width of the network.
    blocks
        how many residual blocks it has.
    activation
        its activation.
    """
    usual = hidden % 16 == 0 and blocks > 0 and activation in ACTIVATIONS
    return in_mixed_precision(x) and usual and not x.requires_grad


def fuses_ranking(points: Tensor) -> bool:
    """Return whether the ranking's kernels can be used.

    Parameters
    ----------
    points
        the nodes of each conditional [..., S], the data among them.
    """
    return in_mixed_precision(points) and points.shape[-1] <= MOST_POINTS and points.ndim > 1
