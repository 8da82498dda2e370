"""The energy network: one small network for every conditional."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aem.nn.blocks import ResidualBlock, activation_named


class EnergyNetwork(nn.Module):
    """(embedded scalar, context γ) → one number f a node, shared by all dimensions.

    The context enters the first layer linearly, so W_γ γ is computed once a conditional
    (`project`) and added to every node, never repeated.
    """

    def __init__(
        self,
        inputs: int,
        context: int,
        *,
        hidden: int,
        blocks: int,
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation = activation_named(activation)
        # One layer on [x, γ], kept as two matrices; both see the fan-in of the whole.
        joint = nn.Linear(inputs + context, hidden)
        self.from_value = nn.Linear(inputs, hidden, bias=False)
        self.from_context = nn.Linear(context, hidden)
        with torch.no_grad():
            self.from_value.weight.copy_(joint.weight[:, :inputs])
            self.from_context.weight.copy_(joint.weight[:, inputs:])
            self.from_context.bias.copy_(joint.bias)
        self.blocks = nn.ModuleList(
            ResidualBlock(
                nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), self.activation, dropout
            )
            for _ in range(blocks)
        )
        self.final = nn.Linear(hidden, 1)

    def project(self, gamma: Float[Tensor, "*B C"]) -> Float[Tensor, "*B H"]:
        """The context's share of the first layer."""
        projected: Tensor = self.from_context(gamma)
        return projected

    def forward(
        self, embedded: Float[Tensor, "*B S E"], projected: Float[Tensor, "*B H"]
    ) -> Float[Tensor, "*B S"]:
        """Evaluate f at S nodes of each conditional."""
        h = self.from_value(embedded) + projected[..., None, :]
        for block in self.blocks:
            h = block(h)
        f: Tensor = self.final(self.activation(h))
        return f[..., 0]
