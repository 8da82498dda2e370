"""What an evaluation of the energy network reads: nodes, contexts, weights, how units are dropped."""

from dataclasses import dataclass

from torch import Tensor

from aem.nn.kernels.packing import Memory


@dataclass(frozen=True)
class EnergyEvaluation:
    """f at S nodes of each of C conditionals: x [C, S], projected [C, H].

    Frequencies repeat with the conditionals. Of the first layer there are the bias and the weights of
    the value; the blocks lie side by side, each matrix before its bias.
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
