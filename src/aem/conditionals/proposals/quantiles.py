"""Quantiles of a mixture, which have no closed form."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from aem.conditionals.proposals.components import Component

MOST_STEPS = 80


def invert_mixture_cdf(
    u: Float[Tensor, "*B S"],
    weights: Float[Tensor, "*B K"],
    locs: Float[Tensor, "*B K"],
    scales: Float[Tensor, "*B K"],
    component: Component,
) -> Float[Tensor, "*B S"]:
    """Solve F(x) = u by Newton's method kept inside a shrinking bracket.

    The quantile of a mixture lies between the smallest and the largest quantile of its components.
    Newton converges in a few steps where the density is not small. Where it would leave the bracket
    (between separated modes), or does not halve the length of the step before last (it can swing
    between two modes for ever without leaving the bracket), the step is a bisection. Below the median
    the equation is log F(x) = log u: in a tail that is nearly quadratic, while F itself is too flat
    to be followed. Finished points leave the iteration.

    Parameters
    ----------
    u
        S probabilities of each conditional, in [0, 1].
    weights
        weights of the K components, which add up to one.
    locs
        locations of the components.
    scales
        scales of the components.
    component
        the standard distribution that they move and stretch.
    """
    k = locs.shape[-1]
    rows = torch.arange(u[..., 0].numel(), device=u.device).repeat_interleave(u.shape[-1])
    # Below the smallest normal number a quantile may be −inf; no mass worth an integral lies there.
    tiny = torch.finfo(u.dtype).tiny
    target = u.reshape(-1).clamp(tiny, 1 - torch.finfo(u.dtype).eps / 2)
    w, m, s = (t.reshape(-1, k) for t in (weights, locs, scales))
    quantile = component.quantile(target)[:, None]
    candidates = m[rows] + s[rows] * quantile
    # A component without weight has no say in where the quantile is.
    heavy = w[rows] > 0
    low = candidates.masked_fill(~heavy, torch.inf).amin(-1)
    high = candidates.masked_fill(~heavy, -torch.inf).amax(-1)
    x = (w[rows] * candidates).sum(-1).clamp(low, high)
    del candidates, heavy

    result: Tensor = x.clone()
    active = torch.arange(len(x), device=x.device)
    eps = torch.finfo(x.dtype).eps
    height = math.exp(component.log_height)
    last = before_last = high - low
    for _ in range(MOST_STEPS):
        wa, ma, sa = w[rows], m[rows], s[rows]
        z = (x[:, None] - ma) / sa
        mass = (wa * component.cdf(z)).sum(-1)
        miss = mass - target
        density = (wa / sa * torch.exp(-component.exponent(z))).sum(-1) * height
        low = torch.where(miss < 0, x, low)
        high = torch.where(miss > 0, x, high)
        gap = torch.where(target < 0.5, mass * torch.log(mass / target), miss)
        step = x - gap / density.clamp_min(tiny)
        useful = (step > low) & (step < high) & ((step - x).abs() < 0.5 * before_last)
        new = torch.where(useful, step, 0.5 * (low + high))
        resolution = 4 * eps * (x.abs() + sa.amin(-1))
        done = (miss.abs() <= 4 * eps * target) | ((new - x).abs() <= resolution)
        result[active] = torch.where(done, x, new)
        keep = ~done
        if not bool(keep.any()):
            break
        active, rows, target = active[keep], rows[keep], target[keep]
        last, before_last = (new - x).abs()[keep], last[keep]
        x, low, high = new[keep], low[keep], high[keep]
    return result.reshape(u.shape)
