"""MADE: the parameters of all conditionals from one forward pass (Germain et al. 2015)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aem.nn.activations import activation_named
from aem.nn.blocks import PlainBlock
from aem.nn.contexts import check_context
from aem.nn.features import FourierFeatures
from aem.nn.masks import MaskedLinear, hidden_degrees
from aem.nn.rowwise import Linear


class MADE(nn.Module):
    """x → outputs [B, D, O], the d-th of which depends on x_<d (and the context) alone.

    Parameters
    ----------
    features
        D, the number of columns; or the Fourier features that are to be read of each.
    outputs
        O, how many numbers each conditional needs.
    hidden
        units of every hidden layer, D at least.
    blocks
        how many hidden layers lie behind the first one; in a `ResMADE`, residual blocks of two
        layers each.
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
    >>> from aem import MADE
    >>> shift, log_scale = MADE(5, 2, hidden=64, blocks=2)(torch.randn(10, 5)).unbind(-1)
    >>> shift.shape
    torch.Size([10, 5])
    """

    def __init__(
        self,
        features: int | FourierFeatures,
        outputs: int,
        *,
        hidden: int,
        blocks: int,
        activation: str = "relu",
        dropout: float = 0.0,
        context_features: int = 0,
    ) -> None:
        super().__init__()
        embedding = (
            FourierFeatures(torch.zeros(features, 0)) if isinstance(features, int) else features
        )
        self.features, self.outputs = embedding.frequencies.shape[0], outputs
        self.context_features = context_features
        self.embedding = embedding
        self.activation_name, self.dropout = activation, dropout
        self.activation = activation_named(activation)
        feature_degrees = torch.arange(1, self.features + 1)
        degrees = hidden_degrees(self.features, hidden, conditional=context_features > 0)
        input_degrees = feature_degrees.repeat_interleave(embedding.width)
        output_degrees = feature_degrees.repeat_interleave(outputs)
        self.degrees = input_degrees, degrees, output_degrees
        self.initial = MaskedLinear(input_degrees, degrees)
        self.blocks = nn.ModuleList(self._block(degrees) for _ in range(blocks))
        self.final = MaskedLinear(degrees, output_degrees, strict=True)
        # The conditioning vector reaches every unit: no degree restricts what it may influence.
        self.context_layers = nn.ModuleList(
            Linear(context_features, hidden, bias=False)
            for _ in range(blocks + 1 if context_features else 0)
        )

    def _block(self, degrees: Int[Tensor, " H"]) -> nn.Module:
        return PlainBlock(MaskedLinear(degrees, degrees), self.activation, self.dropout)

    @property
    def numbers_a_row(self) -> int:
        """Roughly, how many numbers a forward pass holds in memory per row."""
        return 6 * self.final.in_features

    def biases(self) -> Float[Tensor, "D O"]:
        """Return the bias of each conditional's outputs, a view that may be changed."""
        return self.final.bias.view(self.features, self.outputs)

    def silence(self, count: int) -> None:
        """Make the first outputs of every conditional constant, by setting their weights to zero.

        Parameters
        ----------
        count
            how many of the O outputs.
        """
        self.final.weight.view(self.features, self.outputs, -1)[:, :count] = 0

    def context_shifts(
        self, context: Float[Tensor, "B Q"] | None, batch: int
    ) -> list[Tensor | None]:
        """Return what the conditioning vector adds to the first layer and to each block.

        Parameters
        ----------
        context
            a vector per row; None for a network without.
        batch
            how many rows are read, which the context must fit.
        """
        check_context(context, self.context_features, batch)
        if context is None:
            return [None] * (len(self.blocks) + 1)
        return [layer(context) for layer in self.context_layers]

    def forward(
        self, x: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None = None
    ) -> Float[Tensor, "B D O"]:
        """Emit the outputs of all D conditionals in one pass.

        Parameters
        ----------
        x
            rows, usually standardised: values beyond ±1e4 are clamped.
        context
            a conditioning vector per row; None for a network without.
        """
        return self._through(x, self.context_shifts(context, len(x)))

    def _through(
        self, x: Float[Tensor, "B D"], shifts: Sequence[Tensor | None]
    ) -> Float[Tensor, "B D O"]:
        shift, *block_shifts = shifts
        with torch.autocast(x.device.type, enabled=False):  # rows with all their digits
            h: Tensor = self.initial(self.embedding(x).flatten(-2))
        if shift is not None:
            h = h + shift
        for block, block_shift in zip(self.blocks, block_shifts, strict=True):
            h = block(h, block_shift)
        outputs: Tensor = self.final(self.activation(h))
        return outputs.reshape(*outputs.shape[:-1], self.features, self.outputs)
