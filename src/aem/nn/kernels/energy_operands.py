"""The arguments of an evaluation of the energy network: nodes, contexts, weights and dropout."""

from dataclasses import dataclass

from torch import Tensor

from aem.nn.kernels.packing import Memory


@dataclass(frozen=True)
class EnergyOperands:
    """The arguments of an evaluation of the energy network by the kernels.

    Frequencies repeat with the conditionals.

    Parameters
    ----------
    x
        S nodes of each of C conditionals [C, S].
    frequencies
        Fourier frequencies.
    projected
        what the context adds to the first layer [C, H].
    first_bias
        bias of the first layer.
    value
        weights of the first layer for the value and its features.
    final
        weights of the last layer.
    final_bias
        its bias.
    blocks
        parameters of the blocks side by side, each matrix before its bias.
    tanh
        whether the activation is tanh rather than ReLU.
    dropout
        share of the units left out.
    """

    x: Tensor
    frequencies: Tensor
    projected: Tensor
    first_bias: Tensor
    value: Tensor
    final: Tensor
    final_bias: Tensor
    blocks: Memory
    tanh: bool
    dropout: float = 0.0
