"""The pre-activation residual block both networks are made of."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from aem.base.randomness import dropout
from aem.errors import AemError

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {"relu": F.relu, "tanh": torch.tanh}


def activation_named(name: str) -> Activation:
    """Look an activation up, or say which there are."""
    if name not in ACTIVATIONS:
        raise AemError(f"unknown activation '{name}'; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class ResidualBlock(nn.Module):
    """h + W₂ dropout(a(W₁ a(h) + c)); c is an optional shift from a conditioning vector.

    W₂ starts at zero, so that a new network is its first and last layer and depth grows in training.
    """

    def __init__(
        self, first: nn.Linear, second: nn.Linear, activation: Activation, dropout: float
    ) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.activation = activation
        self.dropout = dropout
        nn.init.zeros_(second.weight)
        nn.init.zeros_(second.bias)

    def forward(
        self, h: Float[Tensor, "*B H"], shift: Float[Tensor, "*B H"] | None = None
    ) -> Float[Tensor, "*B H"]:
        """Apply the block."""
        t: Tensor = self.first(self.activation(h))
        if shift is not None:
            t = t + shift
        t = dropout(self.activation(t), self.dropout, training=self.training)
        step: Tensor = self.second(t)
        return h + step
