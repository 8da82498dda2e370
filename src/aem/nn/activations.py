"""Activations by name, as listed in `aem.config`; some of them have kernels (`aem.nn.kernels`)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from aem.errors import AemError
from aem.nn.functions import elu, sigmoid, softplus

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "leaky_relu": F.leaky_relu,
    "elu": elu,
}


def activation_named(name: str) -> Activation:
    """Return an activation by its name.

    Parameters
    ----------
    name
        a key of `ACTIVATIONS`.
    """
    if name not in ACTIVATIONS:
        raise AemError(f"unknown activation '{name}'; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
