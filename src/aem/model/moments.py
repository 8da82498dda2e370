"""Moments, entropies and divergences: quadrature where it suffices, draws beyond, with an error.

What has no closed form is averaged over draws whose stream is always the same, so that a question has
the same answer whenever it is asked.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions.kl import register_kl

from aem.base.randomness import seeded
from aem.errors import AemError

if TYPE_CHECKING:
    from aem.model.distribution import AEMDistribution

DRAWS = 1000
ROWS_AT_A_TIME = 512  # their conditionals keep what their moments are computed from
SEED = 0


@dataclass(frozen=True)
class Moments:
    """Means and variances of the columns of a density, with the standard errors that draws leave.

    Parameters
    ----------
    mean
        the mean of each column.
    variance
        the variance of each column.
    mean_error
        standard error of each mean; zero where quadrature suffices.
    variance_error
        standard error of each variance.
    """

    mean: Float[Tensor, "*B D"]
    variance: Float[Tensor, "*B D"]
    mean_error: Float[Tensor, "*B D"]
    variance_error: Float[Tensor, "*B D"]


@torch.no_grad()
def moments(distribution: "AEMDistribution", draws: int = DRAWS) -> Moments:
    """Average the moments of conditionals, which are computed by quadrature, over draws of the past.

    Parameters
    ----------
    distribution
        the density.
    draws
        how many draws, at least two.
    """
    rows = _draws(distribution, draws)
    size = max(ROWS_AT_A_TIME // max(distribution.batch_shape.numel(), 1), 1)
    found = [_of_conditionals(distribution, some) for some in rows.split(size)]
    each, own = (torch.cat(parts) for parts in zip(*found, strict=True))
    mean = each.mean(0)
    # E Var(x | past) + Var E(x | past)
    spread = own + (each - mean).square()
    dtype = distribution.model.dtype
    return Moments(
        mean.to(dtype),
        spread.mean(0).to(dtype),
        _standard_error(each).to(dtype),
        _standard_error(spread).to(dtype),
    )


def _of_conditionals(distribution: "AEMDistribution", rows: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances of the conditionals of rows [*S, *B, D]."""
    conditionals = distribution.conditionals(rows)
    means = [conditional.mean() for conditional in conditionals]
    variances = [conditional.variance() for conditional in conditionals]
    return torch.stack(means, -1), torch.stack(variances, -1)


@torch.no_grad()
def entropy_and_error(
    distribution: "AEMDistribution", draws: int = DRAWS
) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
    """Average −log p over draws; the result has no gradient.

    Parameters
    ----------
    distribution
        the density.
    draws
        how many draws, at least two.

    Returns
    -------
    entropy : tensor [*B]
        the differential entropy, in nats.
    error : tensor [*B]
        its standard error.
    """
    rows = _draws(distribution, draws)
    surprise = -distribution.log_prob_and_error(rows)[0]
    return surprise.mean(0), _standard_error(surprise)


@torch.no_grad()
def kl_divergence_and_error(
    p: Distribution, q: Distribution, draws: int = DRAWS
) -> tuple[Tensor, Tensor]:
    """Average log p − log q over draws from p; the result has no gradient.

    `torch.distributions.kl_divergence` gives the first of the two numbers where either distribution is
    an `AEMDistribution`.

    Parameters
    ----------
    p
        the distribution that rows are drawn from.
    q
        the distribution that it is compared with, of the same event shape.
    draws
        how many draws, at least two.

    Returns
    -------
    divergence : tensor [*B]
        the Kullback–Leibler divergence of q from p, in nats.
    error : tensor [*B]
        its standard error.
    """
    if p.event_shape != q.event_shape:
        raise AemError(
            f"a divergence needs events of one shape, not {tuple(p.event_shape)} and "
            f"{tuple(q.event_shape)}"
        )
    drawn_from = p
    if p.batch_shape != q.batch_shape:
        drawn_from = p.expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape))
    rows = _draws(drawn_from, draws)
    gain = _log_prob(p, rows) - _log_prob(q, rows)
    return gain.mean(0), _standard_error(gain)


def _draws(distribution: Distribution, draws: int) -> Tensor:
    """The same draws whenever they are asked for."""
    if draws < 2:
        raise AemError(f"a mean with an error needs at least 2 draws, not {draws}")
    with torch.random.fork_rng():  # on whatever device it draws
        device = distribution.sample(torch.Size((1,))).device
    with seeded(SEED, device):
        return distribution.sample(torch.Size((draws,)))


def _log_prob(distribution: Distribution, rows: Tensor) -> Tensor:
    """Log densities by quadrature, whatever the mode of a model."""
    exact = getattr(distribution, "log_prob_and_error", None)
    found: Tensor = distribution.log_prob(rows) if exact is None else exact(rows)[0]
    return found


def _standard_error(values: Tensor) -> Tensor:
    """Of means over the first axis."""
    error: Tensor = values.std(0) / len(values) ** 0.5
    return error


def register_divergences(kind: type[Distribution]) -> None:
    """Register divergences from and to a kind of distribution with `torch.distributions`.

    Parameters
    ----------
    kind
        the class of the distribution.
    """
    for pair in ((kind, kind), (kind, Distribution), (Distribution, kind)):
        register_kl(*pair)(_divergence)


def _divergence(p: Distribution, q: Distribution) -> Tensor:
    return kl_divergence_and_error(p, q)[0]
