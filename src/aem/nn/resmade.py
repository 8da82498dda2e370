"""ResMADE: one pass that gives every conditional its parameters (paper, appendix A)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aem.nn.blocks import ResidualBlock, activation_named
from aem.nn.contexts import check_context
from aem.nn.features import REACH, FourierFeatures
from aem.nn.kernels import applied, fuses_resmade
from aem.nn.masks import MaskedLinear, hidden_degrees
from aem.nn.rowwise import Linear


class ResMADE(nn.Module):
    """x → outputs [B, D, O], the d-th of which depends on x_<d (and the context) alone."""

    def __init__(
        self,
        embedding: FourierFeatures,
        outputs: int,
        *,
        hidden: int,
        blocks: int,
        activation: str = "relu",
        dropout: float = 0.0,
        context_features: int = 0,
    ) -> None:
        super().__init__()
        features = embedding.frequencies.shape[0]
        self.features, self.outputs = features, outputs
        self.context_features = context_features
        self.embedding = embedding
        self.activation = activation_named(activation)
        self.tanh, self.dropout = activation == "tanh", dropout
        feature_degrees = torch.arange(1, features + 1)
        degrees = hidden_degrees(features, hidden, conditional=context_features > 0)
        input_degrees = feature_degrees.repeat_interleave(embedding.width)
        output_degrees = feature_degrees.repeat_interleave(outputs)
        self.degrees = input_degrees, degrees, output_degrees
        self._degrees: object = None  # the same on the device, made when kernels first ask for it
        self.initial = MaskedLinear(input_degrees, degrees)
        self.blocks = nn.ModuleList(
            ResidualBlock(
                MaskedLinear(degrees, degrees),
                MaskedLinear(degrees, degrees),
                self.activation,
                dropout,
            )
            for _ in range(blocks)
        )
        self.final = MaskedLinear(degrees, output_degrees, strict=True)
        # The conditioning vector reaches every unit: no degree restricts what it may influence.
        self.context_layers = nn.ModuleList(
            Linear(context_features, hidden, bias=False)
            for _ in range(blocks + 1 if context_features else 0)
        )

    @property
    def numbers_a_row(self) -> int:
        """About what a pass holds at a time for each row."""
        return 6 * self.final.in_features

    def biases(self) -> Float[Tensor, "D O"]:
        """What each conditional's outputs are shifted by."""
        return self.final.bias.view(self.features, self.outputs)

    def silence(self, count: int) -> None:
        """Make the first outputs of every conditional constants."""
        self.final.weight.view(self.features, self.outputs, -1)[:, :count] = 0

    def residual_blocks(self) -> list[ResidualBlock]:
        """The blocks under their own type."""
        return [block for block in self.blocks if isinstance(block, ResidualBlock)]

    def context_shifts(
        self, context: Float[Tensor, "B Q"] | None, batch: int
    ) -> list[Tensor | None]:
        """What the conditioning vector adds to the projection and to each block."""
        check_context(context, self.context_features, batch)
        if context is None:
            return [None] * (len(self.blocks) + 1)
        return [layer(context) for layer in self.context_layers]

    def forward(
        self, x: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None = None
    ) -> Float[Tensor, "B D O"]:
        """Emit the outputs of all D conditionals in one pass."""
        shift, *block_shifts = self.context_shifts(context, len(x))
        if fuses_resmade(x, self.final.in_features, len(self.blocks)) and shift is None:
            return self._fused(x)
        with torch.autocast(x.device.type, enabled=False):  # rows with all their digits
            h: Tensor = self.initial(self.embedding(x).flatten(-2))
        if shift is not None:
            h = h + shift
        for block, block_shift in zip(self.residual_blocks(), block_shifts, strict=True):
            h = block(h, block_shift)
        outputs: Tensor = self.final(self.activation(h))
        return outputs.reshape(*outputs.shape[:-1], self.features, self.outputs)

    def _fused(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B D O"]:
        """The same by the fused kernels, in bfloat16."""
        from aem.nn.kernels.resmade import Degrees, FusedResMADE, embed

        if not isinstance(self._degrees, Degrees) or self._degrees.hidden.device != x.device:
            self._degrees = Degrees(*(d.to(x.device, torch.int32) for d in self.degrees))
        outputs: Tensor = applied(
            FusedResMADE,
            # With all their digits: bfloat16 knows no number between 3 and 3.0156.
            embed(x, self.embedding.frequencies, REACH, torch.float32),
            self._degrees,
            self.dropout if self.training else 0.0,
            self.tanh,
            torch.bfloat16,
            *self.parameters(),
        )
        return outputs.view(len(x), self.features, self.outputs)
