"""The reference value of log Z in section 5.2 of the paper: a trapezoidal rule until convergence.

It shares only the energy with the library's quadrature: equal steps in x instead of adaptive panels
in quantiles of the proposal. It is slow and simple, and therefore suited to check the other.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aem.base.progress import Report, counting, silent
from aem.conditionals.batch import Conditionals
from aem.conditionals.normalizer import nodes_within
from aem.evaluation.importance import MEMORY, ranges

FIGURES = 7  # significant digits of log Z
FIRST_STEPS = 2**10
MOST_STEPS = 2**22
REACH = 1e-16  # probability of the proposal that is left out on each side
WIDE = 10.0  # standard deviations, as literal energies may have mass far from the proposal


@dataclass(frozen=True)
class Truth:
    """log Z of N conditionals by the trapezoid rule.

    Parameters
    ----------
    log_z
        log Z of each conditional.
    steps
        how many steps each took.
    converged
        whether it reached as many significant figures as were asked for.
    edge
        whether the integrand has not vanished where the window ends.
    """

    log_z: Float[Tensor, " N"]
    steps: Int[Tensor, " N"]
    converged: Bool[Tensor, " N"]
    edge: Bool[Tensor, " N"]


def window(conditionals: Conditionals) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the range of integration: that of the proposal, and a wider one for literal energies.

    Parameters
    ----------
    conditionals
        a flat batch.

    Returns
    -------
    low : tensor [N]
        where the window of each conditional begins.
    high : tensor [N]
        where it ends.
    """
    like = conditionals.proposal.batch
    ends = like.new_tensor([REACH, 1 - REACH]).expand(len(like), 2)
    low, high = conditionals.proposal.icdf(ends).unbind(-1)
    if conditionals.form == "literal" and not conditionals.proposal.bounded:
        low, high = low.clamp(max=-WIDE), high.clamp(min=WIDE)
    return low, high


@torch.no_grad()
def trapezoid_log_z(
    conditionals: Conditionals,
    *,
    memory: int = MEMORY,
    report: Report = silent,
) -> Truth:
    """Halve the step until log Z keeps its significant digits twice in a row.

    Once may be an accident: with kinks in the integrand the error changes sign from step to step.
    Significant figures of log Z, or of Z itself where log Z is below one: there log Z has no
    leading figures to speak of. Halving adds the midpoints only; what was summed up stays.

    Parameters
    ----------
    conditionals
        a flat batch.
    memory
        bytes that may be held at a time.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    low, high = window(conditionals)
    n = len(low)
    ends = torch.stack((low, high), -1)
    at_ends = _log_density(conditionals, ends)
    log_sum = at_ends.logsumexp(-1) - math.log(2)
    log_sum = torch.logaddexp(
        log_sum, _log_points(conditionals, low, high, FIRST_STEPS, slice(1, FIRST_STEPS, 1), memory)
    )
    log_z = log_sum + ((high - low) / FIRST_STEPS).log()
    steps = torch.full((n,), FIRST_STEPS, device=low.device)
    converged = torch.zeros(n, dtype=torch.bool, device=low.device)
    agreed = converged.clone()
    active = torch.arange(n, device=low.device)
    count, settled = FIRST_STEPS, counting(report, "trapezoid rule", n)
    while len(active) and count < MOST_STEPS:
        count *= 2
        some = conditionals.select(active)
        a, b = low[active], high[active]
        odd = _log_points(some, a, b, count, slice(1, count, 2), memory)
        log_sum[active] = torch.logaddexp(log_sum[active], odd)
        new = log_sum[active] + ((b - a) / count).log()
        agree = (new - log_z[active]).abs() <= 0.5 * 10.0**-FIGURES * new.abs().clamp_min(1.0)
        log_z[active], steps[active] = new, count
        converged[active] = agree & agreed[active]
        agreed[active] = agree
        still_open = active[~converged[active]]
        settled(len(active) - len(still_open))
        active = still_open
    settled(len(active))
    # What one more standard deviation of the same height would add, against what seven figures see.
    edge = at_ends.amax(-1) - log_z > math.log(10.0**-FIGURES)
    if conditionals.proposal.bounded:
        edge = torch.zeros_like(edge)  # a uniform proposal ends where the data does, by its bounds
    return Truth(log_z, steps, converged, edge)


def _log_density(conditionals: Conditionals, x: Tensor) -> Tensor:
    """log p̃ = log q + log w; where q has underflowed, the relative form has nothing left either."""
    if conditionals.form == "literal":
        return conditionals.negative_energy(x)
    return conditionals.proposal.log_prob(x) + conditionals.log_weight(x)


def _log_points(
    conditionals: Conditionals, low: Tensor, high: Tensor, steps: int, which: slice, memory: int
) -> Float[Tensor, " N"]:
    """Return the log of the sum of p̃ over points of the grid, in chunks."""
    points = torch.arange(which.start, which.stop, which.step, device=low.device, dtype=low.dtype)
    points /= steps
    fits = nodes_within(memory, conditionals)
    total = low.new_full((len(low),), -torch.inf)
    for rows in ranges(len(low), max(fits // len(points), 1)):
        index = torch.arange(rows.start, rows.stop, device=low.device)
        some = conditionals.select(index)
        a, b = low[index, None], high[index, None]
        for t in torch.split(points, max(fits // len(index), 1)):
            log_p = _log_density(some, a + t * (b - a))
            total[index] = torch.logaddexp(total[index], log_p.logsumexp(-1))
    return total
