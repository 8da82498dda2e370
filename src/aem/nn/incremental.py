"""Autoregressive networks evaluated column by column, for sampling, at the cost of one forward pass.

ResMADE's hidden units are sorted by degree, so when x_d becomes known exactly the units of degree d
become computable in every layer, and they read only units that are known already. A Transformer's
tokens keep their keys and values for those to come. Each unit, each token, is computed once. A plain
sampler runs the whole network D times instead, and so does a MADE without residual blocks here.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from aem.nn.features import REACH, fourier_features
from aem.nn.made import MADE
from aem.nn.masks import hidden_degrees
from aem.nn.resmade import ResMADE
from aem.nn.rowwise import MANY, linear
from aem.nn.transformer import CausalTransformer, attention


@runtime_checkable
class Incremental(Protocol):
    """An autoregressive network that reads one column after the other.

    Call `outputs()` for the next feature's parameters, then `push(x_d)`, D times (evaluation).
    """

    known: int  # features pushed so far

    def outputs(self) -> Float[Tensor, "B O"]:
        """Return the parameters of the next conditional."""

    def push(self, x: Float[Tensor, " B"]) -> None:
        """Give the network the value of the next column.

        Parameters
        ----------
        x
            its standardised value in each row.
        """


def incremental(
    network: MADE | CausalTransformer, rows: int, context: Float[Tensor, "B Q"] | None = None
) -> Incremental:
    """Return an evaluation of a network column by column.

    Parameters
    ----------
    network
        an autoregressive network of any kind.
    rows
        B, how many rows go together.
    context
        a conditioning vector per row; None for a network without.
    """
    if isinstance(network, ResMADE):
        return IncrementalResMADE(network, rows, context)
    if isinstance(network, MADE):
        return WholePasses(network, rows, context)
    return IncrementalTransformer(network, rows, context)


class WholePasses:
    """Runs the whole network for each column, on the columns known so far.

    Parameters
    ----------
    network
        a MADE of plain layers.
    rows
        B, how many rows go together.
    context
        a conditioning vector per row; None for a network without.
    """

    def __init__(
        self, network: MADE, rows: int, context: Float[Tensor, "B Q"] | None = None
    ) -> None:
        self.network, self.context, self.known = network, context, 0
        self.past = network.initial.weight.new_zeros(rows, network.features)

    def outputs(self) -> Float[Tensor, "B O"]:
        """Parameters of the next conditional."""
        emitted: Tensor = self.network(self.past, self.context)[:, self.known]
        return emitted

    def push(self, x: Float[Tensor, " B"]) -> None:
        """Make the next feature known."""
        self.past[:, self.known] = x
        self.known += 1


class IncrementalTransformer:
    """Adds a token for each column, and keeps keys and values of earlier tokens.

    Parameters
    ----------
    network
        a causal Transformer in evaluation mode.
    rows
        B, how many rows go together.
    context
        a conditioning vector per row; None for a network without.
    """

    def __init__(
        self, network: CausalTransformer, rows: int, context: Float[Tensor, "B Q"] | None = None
    ) -> None:
        self.network, self.known = network, 0
        stand = network.stand(context, rows).expand(rows, -1, -1)
        self.past = stand.new_empty(rows, network.features)
        self.tokens = [token[:, None] for token in stand.unbind(1)]
        width = network.hidden
        self.kept = [
            stand.new_empty(2, rows, block.heads, network.features, width // block.heads)
            for block in network.causal_blocks()
        ]
        self.emitted = self._advance(self.tokens[0])

    def outputs(self) -> Float[Tensor, "B O"]:
        """Parameters of the next conditional."""
        return self.emitted

    def push(self, x: Float[Tensor, " B"]) -> None:
        """Make the next feature known."""
        self.past[:, self.known] = x
        self.known += 1
        if self.known < self.network.features:
            read = self.network.read(self.past[:, : self.known], self.known - 1)
            self.emitted = self._advance(self.tokens[self.known] + read)

    def _advance(self, h: Float[Tensor, "B 1 H"]) -> Float[Tensor, "B O"]:
        """Pass one more token through all blocks."""
        here = self.known
        for block, kept in zip(self.network.causal_blocks(), self.kept, strict=True):
            query, key, value = block.projected(h)
            kept[0, :, :, here : here + 1], kept[1, :, :, here : here + 1] = key, value
            known = kept[:, :, :, : here + 1]
            h = block.finish(h, attention(query, known[0], known[1]))
        return self.network.emit(h, here)[:, 0]


class IncrementalResMADE:
    """Computes the hidden units of ResMADE degree by degree.

    Parameters
    ----------
    network
        a ResMADE in evaluation mode.
    rows
        B, how many rows go together.
    context
        a conditioning vector per row; None for a network without.
    """

    def __init__(
        self, network: ResMADE, rows: int, context: Float[Tensor, "B Q"] | None = None
    ) -> None:
        self.network = network
        self.known = 0  # features pushed so far
        weight = network.initial.weight
        hidden = weight.shape[0]
        degrees = hidden_degrees(network.features, hidden, conditional=network.context_features > 0)
        # ends[d]: how many hidden units have degree ≤ d
        thresholds = torch.arange(network.features + 1)
        self.ends: list[int] = torch.searchsorted(degrees, thresholds, right=True).tolist()
        self.shifts = network.context_shifts(context, rows)
        self.embedded = weight.new_zeros(rows, network.initial.in_features)
        # Activations entering each layer, filled from the left: two per block and one at the end.
        self.inputs = [weight.new_zeros(rows, hidden) for _ in range(2 * len(network.blocks) + 1)]
        self._advance(0, self.ends[0])

    def outputs(self) -> Float[Tensor, "B O"]:
        """Parameters of the next conditional."""
        net, end = self.network, self.ends[self.known]
        own = slice(self.known * net.outputs, (self.known + 1) * net.outputs)
        # Units of degree ≤ known are all this feature may see, so the mask is one everywhere here.
        weight, bias = net.final.weight[own, :end], net.final.bias[own]
        return linear(self.inputs[-1][:, :end], weight, bias, MANY)

    def push(self, x: Float[Tensor, " B"]) -> None:
        """Make the next feature known."""
        net, d = self.network, self.known
        width = net.embedding.width
        embedded = fourier_features(x.clamp(-REACH, REACH), net.embedding.frequencies[d])
        self.embedded[:, d * width : (d + 1) * width] = embedded
        self.known = d + 1
        self._advance(self.ends[d], self.ends[d + 1])

    def _advance(self, start: int, end: int) -> None:
        """Compute hidden units start … end in every layer."""
        if start == end:
            return
        net, new = self.network, slice(start, end)
        seen = self.known * net.embedding.width
        layer = net.initial
        h = linear(self.embedded[:, :seen], layer.weight[new, :seen], layer.bias[new], MANY)
        if self.shifts[0] is not None:
            h = h + self.shifts[0][:, new]
        for i, block in enumerate(net.residual_blocks()):
            first, second = self.inputs[2 * i], self.inputs[2 * i + 1]
            first[:, new] = net.activation(h)
            t = linear(first[:, :end], block.first.weight[new, :end], block.first.bias[new], MANY)
            shift = self.shifts[i + 1]
            if shift is not None:
                t = t + shift[:, new]
            second[:, new] = net.activation(t)
            weight, bias = block.second.weight[new, :end], block.second.bias[new]
            h = h + linear(second[:, :end], weight, bias, MANY)
        self.inputs[-1][:, new] = net.activation(h)
