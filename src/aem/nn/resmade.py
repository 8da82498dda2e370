"""ResMADE: a MADE whose hidden layers are residual blocks (paper, appendix A).

All its hidden layers have the same degrees. The output of a block can therefore be added to its input
without new dependences between units. A ResMADE can replace a MADE everywhere.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aem.nn.blocks import ResidualBlock
from aem.nn.features import REACH
from aem.nn.kernels import applied, fuses_resmade, is_tanh
from aem.nn.made import MADE
from aem.nn.masks import MaskedLinear


class ResMADE(MADE):
    """x → outputs [B, D, O], the d-th of which depends on x_<d (and the context) alone.

    It can stand wherever a `MADE` can. A fresh one is its first and its last layer: depth grows in
    training.

    Parameters
    ----------
    features
        D, the number of columns; or the Fourier features that are to be read of each.
    outputs
        O, how many numbers each conditional needs.
    hidden
        units of every hidden layer, D at least.
    blocks
        residual blocks of two layers each, behind the first layer.
    activation
        one of `aem.nn.activations.ACTIVATIONS`: "relu", "tanh", "sigmoid", "softplus", "leaky_relu"
        or "elu".
    dropout
        share of the units left out in training.
    context_features
        length of a conditioning vector that every output may depend on; zero for none.

    Examples
    --------
    >>> import torch
    >>> from aem import ResMADE
    >>> shift, log_scale = ResMADE(5, 2, hidden=64, blocks=2)(torch.randn(10, 5)).unbind(-1)
    >>> shift.shape
    torch.Size([10, 5])
    """

    _degrees: object = None  # on the device, made when kernels first ask for them

    def _block(self, degrees: Int[Tensor, " H"]) -> nn.Module:
        first, second = (MaskedLinear(degrees, degrees) for _ in range(2))
        return ResidualBlock(first, second, self.activation, self.dropout)

    def residual_blocks(self) -> list[ResidualBlock]:
        """Return the blocks with their type."""
        return [block for block in self.blocks if isinstance(block, ResidualBlock)]

    def forward(
        self, x: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None = None
    ) -> Float[Tensor, "B D O"]:
        """Emit the outputs of all D conditionals in one pass."""
        shifts = self.context_shifts(context, len(x))
        hidden, blocks = self.final.in_features, len(self.blocks)
        if fuses_resmade(x, hidden, blocks, self.activation_name) and context is None:
            return self._fused(x)
        return self._through(x, shifts)

    def _fused(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B D O"]:
        """Emit the outputs by the fused kernels, in bfloat16."""
        from aem.nn.kernels.resmade import Degrees, FusedResMADE, embed

        if not isinstance(self._degrees, Degrees) or self._degrees.hidden.device != x.device:
            self._degrees = Degrees(*(d.to(x.device, torch.int32) for d in self.degrees))
        outputs: Tensor = applied(
            FusedResMADE,
            # With all their digits: bfloat16 knows no number between 3 and 3.0156.
            embed(x, self.embedding.frequencies, REACH, torch.float32),
            self._degrees,
            self.dropout if self.training else 0.0,
            is_tanh(self.activation_name),
            torch.bfloat16,
            *self.parameters(),
        )
        return outputs.view(len(x), self.features, self.outputs)
