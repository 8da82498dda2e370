"""The residual and plain blocks of which ResMADE, MADE and the energy network consist."""

from jaxtyping import Float
from torch import Tensor, nn

from aem.base.randomness import dropout
from aem.nn.activations import Activation


class ResidualBlock(nn.Module):
    """h + W₂ dropout(a(W₁ a(h) + c)), pre-activation; c is a shift from a conditioning vector, or none.

    W₂ starts at zero, so that a new network is its first and last layer and depth grows in
    training.

    Parameters
    ----------
    first
        the layer W₁.
    second
        the layer W₂, which is set to zero.
    activation
        the function a.
    dropout
        share of the units left out in training.
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
        """Apply the block.

        Parameters
        ----------
        h
            output of the layers before.
        shift
            c, computed from the conditioning vector.
        """
        t: Tensor = self.first(self.activation(h))
        if shift is not None:
            t = t + shift
        t = dropout(self.activation(t), self.dropout, training=self.training)
        step: Tensor = self.second(t)
        return h + step


class PlainBlock(nn.Module):
    """W dropout(a(h)) + c: a layer without a residual connection.

    Parameters
    ----------
    layer
        the layer W.
    activation
        the function a.
    dropout
        share of the units left out in training.
    """

    def __init__(self, layer: nn.Linear, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.layer = layer
        self.activation = activation
        self.dropout = dropout

    def forward(
        self, h: Float[Tensor, "*B H"], shift: Float[Tensor, "*B H"] | None = None
    ) -> Float[Tensor, "*B H"]:
        """Apply the block.

        Parameters
        ----------
        h
            output of the layers before.
        shift
            c, computed from the conditioning vector.
        """
        active = dropout(self.activation(h), self.dropout, training=self.training)
        t: Tensor = self.layer(active)
        return t if shift is None else t + shift
