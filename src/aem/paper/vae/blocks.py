"""Pre-activation residual blocks of convolutions: at one resolution, down, and up."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

Nonlinearity = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Nonlinearity] = {"relu": F.relu, "elu": F.elu, "silu": F.silu}


class ConvBlock(nn.Module):
    """A residual block of convolutions: shortcut(h) + W₂ dropout(a(W₁ a(h))).

    Parameters
    ----------
    channels
        channels that it reads.
    second
        the convolution W₂, which may change the resolution.
    shortcut
        what h goes through beside the block, which changes the resolution in the same way.
    activation
        the function a.
    dropout
        share of the units left out in training.
    """

    def __init__(
        self,
        channels: int,
        second: nn.Module,
        shortcut: nn.Module,
        activation: Nonlinearity,
        dropout: float,
    ) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second, self.shortcut = second, shortcut
        self.activation, self.dropout = activation, dropout
        # As in the other networks, a new block is its shortcut and grows in training.
        for parameter in second.parameters():
            nn.init.zeros_(parameter)

    def forward(self, h: Float[Tensor, "B C R S"]) -> Float[Tensor, "B C2 R2 S2"]:
        """Apply the block."""
        t: Tensor = self.first(self.activation(h))
        t = F.dropout(self.activation(t), self.dropout, self.training)
        step: Tensor = self.second(t)
        kept: Tensor = self.shortcut(h)
        return kept + step


class Stack(nn.Sequential):
    """A sequence of blocks, which torch.compile compiles together."""

    def forward(self, h: Tensor) -> Tensor:
        """Apply all blocks."""
        for block in self:
            h = block(h)
        return h


def same(channels: int, activation: Nonlinearity, dropout: float) -> ConvBlock:
    """Return a block that keeps resolution and channels.

    Parameters
    ----------
    channels
        channels that it reads.
    activation
        the function between the convolutions.
    dropout
        share of the units left out in training.
    """
    second = nn.Conv2d(channels, channels, 3, padding=1)
    return ConvBlock(channels, second, nn.Identity(), activation, dropout)


def down(channels: int, activation: Nonlinearity, dropout: float) -> ConvBlock:
    """Return a block that halves the resolution, rounded up, and doubles the channels.

    Parameters
    ----------
    channels
        channels that it reads.
    activation
        the function between the convolutions.
    dropout
        share of the units left out in training.
    """
    second, shortcut = (nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1) for _ in range(2))
    return ConvBlock(channels, second, shortcut, activation, dropout)


def up(
    channels: int, size: int, target: int, activation: Nonlinearity, dropout: float
) -> ConvBlock:
    """Return a block that doubles the resolution, by transposed convolutions, and halves the channels.

    Parameters
    ----------
    channels
        channels that it reads.
    size
        side of the maps that it reads.
    target
        side of those that it makes: twice the size, or one less.
    activation
        the function between the convolutions.
    dropout
        share of the units left out in training.
    """
    extra = target - (2 * size - 1)
    second, shortcut = (
        nn.ConvTranspose2d(channels, channels // 2, 3, stride=2, padding=1, output_padding=extra)
        for _ in range(2)
    )
    return ConvBlock(channels, second, shortcut, activation, dropout)
