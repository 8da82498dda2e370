"""Highest-density regions of a conditional, to the tolerance of its CDF."""

import torch
from jaxtyping import Float
from torch import Tensor

from aem.conditionals.cdf import PanelCDF

CELLS = (
    24  # pieces a panel is cut into: the quadrature's panels are small where the density is rough
)
ENDS = 20  # halvings towards the ends of the line
BISECTIONS = 50
TILT = 1e-7  # nats over the whole grid: decides between points of equal density


def highest_density_region(cdf: PanelCDF, problem: int, mass: float) -> Float[Tensor, "I 2"]:
    """Return the intervals {x : p(x) ≥ threshold} that together hold the mass, standardised.

    The density is known at points of a grid and taken as linear between them, so a threshold gives
    intervals; their probability comes from the CDF itself, and the threshold is bisected until it
    is right.

    Parameters
    ----------
    cdf
        the CDFs of some conditionals.
    problem
        the number of the conditional among them.
    mass
        the probability of the region, between 0 and 1.
    """
    t = _grid(cdf, problem)
    which = torch.full_like(t, problem, dtype=torch.long)
    coordinates = cdf.coordinates.select(which[:1])
    x = coordinates.point(t[None])[0]
    log_p = coordinates.conditionals.log_unnormalized(x[None])[0]
    level = log_p - log_p.max() + TILT * torch.linspace(0, 1, len(t)).to(t)
    height = level.exp()
    low, high = torch.zeros_like(height[0]), height.max()
    for _ in range(BISECTIONS):
        threshold = 0.5 * (low + high)
        intervals = _above(t, height, threshold)
        f = cdf.at_coordinate(intervals.reshape(-1), which[:1].expand(intervals.numel()))
        held = (f.view(-1, 2)[:, 1] - f.view(-1, 2)[:, 0]).sum()
        low, high = (threshold, high) if held > mass else (low, threshold)
    intervals = _above(t, height, low)
    return coordinates.point(intervals.reshape(1, -1))[0].reshape(-1, 2)


def _grid(cdf: PanelCDF, problem: int) -> Float[Tensor, " G"]:
    """Return a grid within each panel, with ever smaller steps towards both ends of the line."""
    own = slice(int(cdf.first[problem]), int(cdf.first[problem] + cdf.count[problem]))
    start, end = cdf.panels.start[own], cdf.panels.end[own]
    inner = torch.arange(CELLS).to(start) / CELLS
    t = (start[:, None] + (end - start)[:, None] * inner).reshape(-1)[1:]
    step = (t[0] - start[0]) * 0.5 ** torch.arange(ENDS, 0, -1).to(start)
    return torch.cat((start[:1], start[0] + step, t, end[-1] - step.flip(0), end[-1:]))


def _above(t: Tensor, height: Tensor, threshold: Tensor) -> Float[Tensor, "I 2"]:
    """Return the intervals in which a piecewise linear function exceeds a threshold."""
    inside = torch.cat((height.new_zeros(1), (height > threshold).to(height), height.new_zeros(1)))
    rises, falls = (inside.diff() > 0).nonzero()[:, 0], (inside.diff() < 0).nonzero()[:, 0] - 1

    def crossing(inner: Tensor, outer: Tensor) -> Tensor:
        outer = outer.clamp(0, len(t) - 1)
        share = (height[inner] - threshold) / (height[inner] - height[outer]).clamp_min(1e-300)
        return t[inner] + share.clamp(0, 1) * (t[outer] - t[inner])

    return torch.stack((crossing(rises, rises - 1), crossing(falls, falls + 1)), -1)
