"""CDFs and quantiles of conditionals, read off the panels their normalisers were computed with.

Within a panel the 15 values determine a polynomial; scaled to the panel's integral, its antiderivative
is a CDF that agrees with Z at the panels' ends, and neither `cdf` nor `icdf` evaluates an energy
again. Both are exact to the quadrature's tolerance, as kept panels resolve the density itself.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.coordinates import Coordinates
from aem.conditionals.normalizer import Normalizer
from aem.conditionals.quadrature import NODES, NODES_PER_PANEL, Panels
from aem.errors import AemError
from aem.nn.rowwise import MANY, linear

MOST_STEPS = 60
RESOLUTION = 1e-15


def _legendre(s: Float[Tensor, "*Q"], degree: int) -> Float[Tensor, "*Q P"]:
    """Legendre polynomials of degree 0 … `degree` at s."""
    terms = [torch.ones_like(s), s]
    for k in range(1, degree):
        terms.append(((2 * k + 1) * s * terms[k] - k * terms[k - 1]) / (k + 1))
    return torch.stack(terms, -1)


TO_COEFFICIENTS = torch.linalg.inv(_legendre(NODES, NODES_PER_PANEL - 1))  # [degree, node]


def _antiderivative(
    s: Float[Tensor, " Q"], coefficients: Float[Tensor, "Q S"]
) -> Float[Tensor, " Q"]:
    """∫ from −1 to s of Σ c_k P_k, by ∫ P_k = (P_{k+1} − P_{k−1}) / (2k + 1)."""
    p = _legendre(s, NODES_PER_PANEL)
    degrees = torch.arange(1, NODES_PER_PANEL, device=s.device)
    whole = (p[..., 2:] - p[..., :-2]) / (2 * degrees + 1)
    return coefficients[..., 0] * (s + 1) + (coefficients[..., 1:] * whole).sum(-1)


@dataclass(frozen=True)
class PanelCDF:
    """The CDFs of N conditionals as piecewise polynomials in their coordinates.

    Parameters
    ----------
    coordinates
        the coordinates t of the conditionals.
    panels
        the panels of all conditionals, ordered by conditional and by t.
    first
        where each conditional's panels begin.
    count
        how many panels each conditional has.
    below
        mass of a conditional's earlier panels, as a share of Z.
    total
        the integral over all panels of each conditional.
    """

    coordinates: Coordinates
    panels: Panels
    first: Int[Tensor, " N"]
    count: Int[Tensor, " N"]
    below: Float[Tensor, " P"]
    total: Float[Tensor, " N"]

    @classmethod
    def of(cls, normalizer: Normalizer) -> "PanelCDF":
        """Make the CDFs from normalisers that kept their panels.

        Parameters
        ----------
        normalizer
            what `normalizer(…, keep_panels=True)` returned.
        """
        if normalizer.panels is None:
            raise AemError("a CDF needs a normaliser that kept its panels")
        panels = normalizer.panels
        count = torch.bincount(panels.problem, minlength=len(normalizer.log_z))
        first = count.cumsum(0) - count
        total = torch.zeros_like(normalizer.log_z).index_add_(0, panels.problem, panels.integral)
        # Summed problem by problem: one running sum over all would leak rounding between them.
        rank = torch.arange(len(panels), device=count.device) - first[panels.problem]
        table = panels.integral.new_zeros(len(count), int(count.max()) if len(count) else 0)
        table[panels.problem, rank] = panels.integral
        table = table.cumsum(-1) - table
        below = table[panels.problem, rank] / total[panels.problem]
        return cls(normalizer.coordinates, panels, first, count, below, total)

    def _coefficients(self, panel: Int[Tensor, " Q"]) -> Float[Tensor, "Q S"]:
        """The polynomial on s ∈ [−1, 1] of each query's panel, as a share of Z."""
        panels = self.panels
        values = panels.weight[panel] * panels.measure[panel]
        coefficients = linear(values, TO_COEFFICIENTS.to(values.device), block=MANY)
        share = panels.integral[panel] / self.total[panels.problem[panel]]
        # On [−1, 1] a polynomial integrates to twice its coefficient of degree 0.
        tiny = torch.finfo(share.dtype).tiny
        return coefficients * (share / (2 * coefficients[:, 0]).clamp_min(tiny))[:, None]

    def _panel(
        self, key: Float[Tensor, " P"], query: Float[Tensor, " Q"], problem: Int[Tensor, " Q"]
    ) -> Int[Tensor, " Q"]:
        """The last panel of each query's problem whose key (increasing) is not above the query."""
        low = self.first[problem]
        high = low + self.count[problem] - 1
        most = int(self.count.max()) if len(self.count) else 0
        for _ in range(most.bit_length()):
            middle = (low + high + 1) // 2
            right = key[middle] <= query
            low, high = torch.where(right, middle, low), torch.where(right, high, middle - 1)
            high = torch.maximum(low, high)
        return low

    def at_coordinate(
        self, t: Float[Tensor, " Q"], problem: Int[Tensor, " Q"]
    ) -> Float[Tensor, " Q"]:
        """Return F at coordinates of conditionals.

        Parameters
        ----------
        t
            Q coordinates, of any of the N conditionals.
        problem
            the number of the conditional that each belongs to.
        """
        panel = self._panel(self.panels.start, t, problem)
        start, end = self.panels.start[panel], self.panels.end[panel]
        s = ((2 * t - start - end) / (end - start)).clamp(-1, 1)
        part = _antiderivative(s, self._coefficients(panel))
        return (self.below[panel] + part).clamp(0, 1)

    def cdf(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return F(x) of each conditional.

        Parameters
        ----------
        x
            S standardised values of each of the N conditionals.
        """
        t = self.coordinates.coordinate(x)
        problem = torch.arange(len(x), device=x.device).repeat_interleave(x.shape[1])
        return self.at_coordinate(t.reshape(-1), problem).reshape(x.shape)

    def icdf(self, p: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return F⁻¹(p) of each conditional, in standardised units.

        Parameters
        ----------
        p
            S probabilities of each of the N conditionals, in [0, 1].
        """
        problem = torch.arange(len(p), device=p.device).repeat_interleave(p.shape[1])
        return self.coordinates.point(self.coordinate_at(p.reshape(-1), problem).reshape(p.shape))

    def coordinate_at(
        self, p: Float[Tensor, " Q"], problem: Int[Tensor, " Q"]
    ) -> Float[Tensor, " Q"]:
        """Return t where F = p: the panel by its mass below, then Newton's method inside a bracket.

        Parameters
        ----------
        p
            Q probabilities in [0, 1].
        problem
            the number of the conditional that each belongs to.
        """
        panel = self._panel(self.below, p, problem)
        coefficients = self._coefficients(panel)
        target = p - self.below[panel]
        low, high = torch.full_like(p, -1.0), torch.ones_like(p)
        s, done = torch.zeros_like(p), torch.zeros_like(p, dtype=torch.bool)
        for _ in range(MOST_STEPS):
            miss = _antiderivative(s, coefficients) - target
            slope = (coefficients * _legendre(s, NODES_PER_PANEL - 1)).sum(-1)
            low, high = torch.where(miss < 0, s, low), torch.where(miss > 0, s, high)
            newton = s - miss / slope
            inside = (newton > low) & (newton < high)
            new = torch.where(inside, newton, 0.5 * (low + high))
            settled = (miss == 0) | ((new - s).abs() <= RESOLUTION)
            # Those that have settled stay where they are, however long others take.
            s = torch.where(done | (miss == 0), s, new)
            done |= settled
            if bool(done.all()):
                break
        start, end = self.panels.start[panel], self.panels.end[panel]
        return 0.5 * (start + end) + 0.5 * (end - start) * s
