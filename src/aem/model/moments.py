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
    means, variances = [], []
    for conditional in distribution.conditionals(rows):
        means.append(conditional.mean())
        variances.append(conditional.variance())
    each, own = torch.stack(means, -1), torch.stack(variances, -1)
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


@torch.no_grad()
def entropy_and_error(
    distribution: "AEMDistribution", draws: int = DRAWS
) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
    """Average −log p over draws.

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
    """Average log p − log q over draws from p.

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
    rows = _draws(p, draws)
    if p.batch_shape != q.batch_shape:
        shape = torch.broadcast_shapes(p.batch_shape, q.batch_shape)
        rows = _draws(p.expand(shape), draws)
    gain = p.log_prob(rows) - q.log_prob(rows)
    return gain.mean(0), _standard_error(gain)


def _draws(distribution: Distribution, draws: int) -> Tensor:
    """The same draws whenever they are asked for."""
    if draws < 2:
        raise AemError(f"a mean with an error needs at least 2 draws, not {draws}")
    model = getattr(distribution, "model", None)
    device = torch.device("cpu") if model is None else model.device
    with seeded(SEED, device):
        return distribution.sample(torch.Size((draws,)))


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
