"""The energy network, which is shared by all conditionals."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aem.nn.activations import activation_named
from aem.nn.blocks import PlainBlock, ResidualBlock
from aem.nn.features import fourier_features
from aem.nn.kernels import applied, fuses_energy, fuses_inference, is_tanh
from aem.nn.kernels.processor import energy as energy_on_processor
from aem.nn.rowwise import MANY, linear


class NodeLinear(nn.Linear):
    """A linear layer for the nodes of conditionals, in large blocks."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to each node, with a result that does not depend on the others.

        Parameters
        ----------
        input
            numbers per node [..., I].
        """
        return linear(input, self.weight, self.bias, MANY)


class EnergyNetwork(nn.Module):
    """Maps a value x_d and its context vector γ to a number f, from which the energy is computed.

    All columns share the network. The context enters the first layer linearly, so W_γ γ is computed
    once per conditional (`project`) and added to every node.

    Parameters
    ----------
    inputs
        E, how many numbers stand for a value: itself and its Fourier features.
    context
        length of the context vector γ.
    hidden
        width of all layers.
    blocks
        how many blocks lie behind the first layer.
    activation
        one of `aem.nn.activations.ACTIVATIONS`; kernels know "relu" and "tanh".
    dropout
        share of the units left out in training.
    residual
        whether blocks are residual, of two layers each, or plain layers.
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
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.activation = activation_named(activation)
        self.activation_name, self.dropout, self.residual = activation, dropout, residual
        # One layer on [x, γ], kept as two matrices; both see the fan-in of the whole.
        joint = nn.Linear(inputs + context, hidden)
        self.from_value = nn.Linear(inputs, hidden, bias=False)
        self.from_context = nn.Linear(context, hidden)
        with torch.no_grad():
            self.from_value.weight.copy_(joint.weight[:, :inputs])
            self.from_context.weight.copy_(joint.weight[:, inputs:])
            self.from_context.bias.copy_(joint.bias)
        self.blocks = nn.ModuleList(self._block(hidden) for _ in range(blocks))
        self.final = NodeLinear(hidden, 1)

    def _block(self, hidden: int) -> nn.Module:
        first = NodeLinear(hidden, hidden)
        if not self.residual:
            return PlainBlock(first, self.activation, self.dropout)
        return ResidualBlock(first, NodeLinear(hidden, hidden), self.activation, self.dropout)

    def project(self, gamma: Float[Tensor, "*B C"]) -> Float[Tensor, "*B H"]:
        """Return W_γ γ, the context's part of the first layer, without the bias.

        Parameters
        ----------
        gamma
            context vectors γ.
        """
        return linear(gamma, self.from_context.weight)

    def forward(
        self, embedded: Float[Tensor, "*B S E"], projected: Float[Tensor, "*B H"]
    ) -> Float[Tensor, "*B S"]:
        """Evaluate f at S embedded nodes of each conditional.

        Parameters
        ----------
        embedded
            the nodes with their Fourier features.
        projected
            what `project` gave for each conditional.
        """
        if self._fuses_on_processor(embedded):
            return energy_on_processor(
                embedded,
                projected,
                self.dropout if self.training else 0.0,
                self.from_value.weight,
                self.from_context.bias,
                self.final.weight[0],
                self.final.bias,
                *self.blocks.parameters(),
            )
        h = linear(embedded, self.from_value.weight, self.from_context.bias, MANY)
        h = h + projected[..., None, :]
        for block in self.blocks:
            h = block(h)
        f: Tensor = self.final(self.activation(h))
        return f[..., 0]

    def _fuses_on_processor(self, embedded: Float[Tensor, "*B S E"]) -> bool:
        """Return whether the implementation for CPUs can be used: ReLU and residual blocks."""
        usual = self.residual and self.activation_name == "relu"
        plain = usual and not torch.is_autocast_enabled("cpu")
        return plain and embedded.device.type == "cpu" and embedded.numel() > 0

    def at(
        self,
        x: Float[Tensor, "*B S"],
        frequencies: Float[Tensor, "*#B F"],
        projected: Float[Tensor, "*B H"],
    ) -> Float[Tensor, "*B S"]:
        """Evaluate f at S nodes of each conditional, embedded with its own frequencies.

        Fourier features are computed in the precision of x, the rest in that of the weights.

        Parameters
        ----------
        x
            the nodes, standardised.
        frequencies
            Fourier frequencies of each conditional's column.
        projected
            what `project` gave for each conditional.
        """
        kind = self.final.weight.dtype
        if self.residual:
            shape = projected.shape[-1], len(self.blocks), self.activation_name
            if fuses_energy(x, *shape):
                return self._fused(x, frequencies, projected)
            if kind == torch.float32 and fuses_inference(x, *shape):
                return self._fused_in_single(x, frequencies, projected)
        embedded = fourier_features(x, frequencies[..., None, :])
        f: Tensor = self(embedded.to(kind), projected.to(kind))
        return f.to(x.dtype)

    def _flat(self, x: Tensor, frequencies: Tensor, projected: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments of the kernels besides the blocks, with one axis of conditionals."""
        return (
            x.reshape(-1, x.shape[-1]),
            frequencies.flatten(0, -2) if frequencies.ndim > 1 else frequencies[None],
            projected.reshape(-1, projected.shape[-1]),
            self.from_context.bias,
            self.from_value.weight,
            self.final.weight[0],
            self.final.bias,
        )

    def _fused(self, x: Tensor, frequencies: Tensor, projected: Tensor) -> Tensor:
        """Evaluate f by the fused kernels, in bfloat16."""
        from aem.nn.kernels.energy import FusedEnergy

        f: Tensor = applied(
            FusedEnergy,
            *self._flat(x, frequencies, projected),
            self.dropout if self.training else 0.0,
            is_tanh(self.activation_name),
            torch.bfloat16,
            *self.blocks.parameters(),
        )
        return f.view(x.shape)

    def _fused_in_single(self, x: Tensor, frequencies: Tensor, projected: Tensor) -> Tensor:
        """Evaluate f by a fused kernel in float32."""
        from aem.nn.kernels.energy import energy_in_single

        flat = self._flat(x, frequencies, projected)
        tanh = is_tanh(self.activation_name)
        f = energy_in_single(tanh, *flat, *self.blocks.parameters())
        return f.to(x.dtype).view(x.shape)
