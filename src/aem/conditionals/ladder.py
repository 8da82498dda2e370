"""Piecewise linear coordinates: x, or a logarithm of it, through points at equal steps of t ∈ [0, 1].

Where tails fall like a power of x, no straight line holds them: of a Cauchy distribution the quantile
of 1e-5 lies at −3e4, that of 1e-30 at −3e29. There x = c + s sinh y, and y runs linearly instead: a
power of x is an exponential of y.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.proposals.base import Proposal


@dataclass(frozen=True)
class Stretch:
    """x = centre + spread · sinh y, linear near the centre and exponential far from it.

    Parameters
    ----------
    centre
        the middle of each conditional's quartiles.
    spread
        half the distance between them.
    """

    centre: Float[Tensor, "N 1"]
    spread: Float[Tensor, "N 1"]

    @classmethod
    def of(cls, proposal: Proposal) -> "Stretch | None":
        """Fit the stretch to the middle half of a heavy-tailed proposal; others are not stretched.

        Parameters
        ----------
        proposal
            a flat batch of proposals.
        """
        if not proposal.heavy_tailed:
            return None
        like = proposal.batch
        quartiles = proposal.icdf(like.new_tensor((0.25, 0.75)).expand(len(like), -1))
        low, high = quartiles.split(1, -1)
        return cls(0.5 * (low + high), 0.5 * (high - low))

    def point(self, y: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return x at y.

        Parameters
        ----------
        y
            values on the axis that is linear in t.
        """
        grown = y.abs().expm1()
        sinh = 0.5 * (grown + grown / (grown + 1))  # torch.sinh depends on the place in a tensor
        return self.centre + self.spread * torch.copysign(sinh, y)

    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return y at x.

        Parameters
        ----------
        x
            standardised values.
        """
        return ((x - self.centre) / self.spread).asinh()

    def slope(self, y: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return dx/dy.

        Parameters
        ----------
        y
            values on the axis that is linear in t.
        """
        return self.spread * 0.5 * (y.exp() + (-y).exp())


@dataclass(frozen=True)
class Ladder:
    """x, or y of a `Stretch`, as a piecewise linear function of t ∈ [0, 1].

    Parameters
    ----------
    rungs
        the value at equal steps of t.
    stretch
        the map from what is linear in t to x; None where x itself is.
    """

    rungs: Float[Tensor, "N R"]
    stretch: Stretch | None

    @classmethod
    def through(cls, points: Float[Tensor, "N R"], proposal: Proposal) -> "Ladder":
        """Make a ladder through rising values of x.

        Parameters
        ----------
        points
            x at equal steps of t.
        proposal
            decides whether x is stretched.
        """
        stretch = Stretch.of(proposal)
        return cls(points if stretch is None else stretch.coordinate(points), stretch)

    @property
    def pieces(self) -> int:
        """The number of pieces between the rungs."""
        return self.rungs.shape[-1] - 1

    @property
    def ends(self) -> Float[Tensor, "N 2"]:
        """x at t = 0 and at t = 1."""
        ends = torch.cat((self.rungs[:, :1], self.rungs[:, -1:]), -1)
        return ends if self.stretch is None else self.stretch.point(ends)

    def edges(self) -> Float[Tensor, " R"]:
        """Return t of the rungs."""
        return torch.linspace(0, 1, self.pieces + 1, dtype=torch.float64, device=self.rungs.device)

    def _step(self, piece: Int[Tensor, "N S"]) -> tuple[Tensor, Tensor]:
        low, high = self.rungs.gather(-1, piece), self.rungs.gather(-1, piece + 1)
        return low, high - low

    def _line(self, t: Float[Tensor, "N S"]) -> tuple[Tensor, Tensor]:
        """What runs linearly, at t, and how far it runs on its piece."""
        place = t.clamp(0, 1) * self.pieces
        piece = place.long().clamp(max=self.pieces - 1)
        low, step = self._step(piece)
        return low + (place - piece) * step, step

    def point(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return x at t.

        Parameters
        ----------
        t
            coordinates, clamped to [0, 1].
        """
        y, _ = self._line(t)
        return y if self.stretch is None else self.stretch.point(y)

    def coordinate(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return t at x, clamped to [0, 1].

        Parameters
        ----------
        x
            standardised values.
        """
        y = x if self.stretch is None else self.stretch.coordinate(x)
        piece = torch.searchsorted(self.rungs, y.contiguous(), right=True) - 1
        piece = piece.clamp(0, self.pieces - 1)
        low, step = self._step(piece)
        return (piece + ((y - low) / step).clamp(0, 1)) / self.pieces

    def slope(self, t: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return dx/dt; at a rung that of the piece to its right.

        Parameters
        ----------
        t
            coordinates in [0, 1].
        """
        y, step = self._line(t)
        slope = step * self.pieces
        return slope if self.stretch is None else slope * self.stretch.slope(y)

    def select(self, index: Int[Tensor, " P"]) -> "Ladder":
        """Return the ladders of some conditionals.

        Parameters
        ----------
        index
            numbers of the conditionals; one may be named more than once.
        """
        stretch = self.stretch
        if stretch is not None:
            stretch = Stretch(stretch.centre[index], stretch.spread[index])
        return Ladder(self.rungs[index], stretch)

    @staticmethod
    def joined(ladders: Sequence["Ladder"]) -> "Ladder":
        """Put together ladders that are all stretched, or all not.

        Parameters
        ----------
        ladders
            the ladders of consecutive conditionals.
        """
        stretches = [ladder.stretch for ladder in ladders if ladder.stretch is not None]
        return Ladder(
            torch.cat([ladder.rungs for ladder in ladders]),
            Stretch(
                torch.cat([stretch.centre for stretch in stretches]),
                torch.cat([stretch.spread for stretch in stretches]),
            )
            if stretches
            else None,
        )
