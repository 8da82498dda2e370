"""The contract of proposals q(x_d; φ_d): the tractable distributions that energies are relative to.

A *head* turns the numbers φ that the autoregressive network emits into a proposal for a batch of
conditionals. To add a kind of proposal, write one file with both classes, and one line in
`aem.config.PROPOSALS`.

Shapes: a proposal has any batch shape `*B` (usually [B, D]); nodes come last, `[*B, S]`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, Self, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.base.randomness import uniforms
from aem.config import PROPOSALS, ModelConfig
from aem.errors import AemError

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


def stratified_uniforms(like: Float[Tensor, "*B"], nodes: int) -> Float[Tensor, "*B S"]:
    """Cut [0, 1) into S equal strata and draw one uniform in each.

    Parameters
    ----------
    like
        a tensor of the batch's shape, type and device.
    nodes
        S, the number of strata.
    """
    noise = uniforms((*like.shape, nodes), like)
    u = (torch.arange(nodes, dtype=like.dtype, device=like.device) + noise) / nodes
    return u.clamp(max=1 - torch.finfo(like.dtype).eps / 2)  # rounding can reach one


class Measure(ABC):
    """What a quadrature asks of the distributions that it integrates against, with one batch axis."""

    @abstractmethod
    def select(self, index: Int[Tensor, " P"]) -> Self:
        """Return the distributions of some conditionals.

        Parameters
        ----------
        index
            their numbers; one may be named more than once.
        """

    @abstractmethod
    def density(self, x: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return the density at each node, which far out may round to zero.

        Parameters
        ----------
        x
            S nodes of each conditional.
        """

    @abstractmethod
    def masses(self, points: Float[Tensor, "N S"]) -> Float[Tensor, "N T"]:
        """Return the probabilities between neighbouring points of each conditional.

        Parameters
        ----------
        points
            S rising points; there is one probability less.
        """

    def mass(self, ends: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B"]:
        """Return the probability between two points of each conditional.

        Parameters
        ----------
        ends
            the two points, the lower one first.
        """
        return self.masses(ends)[..., 0]


class Proposal(Measure):
    """A distribution for each conditional of a batch of shape `*B`.

    To write
    --------
    - `batch`, a tensor of the batch's shape, type and device, and `changed`, which applies a function
      to every tensor of parameters. Their leading axes are those of the batch.
    - `log_prob`, differentiable in the parameters: training maximises it.
    - `cdf` and `sf`, each with all its digits where it is small, and differentiable in the parameters,
      as gradients of log densities need. One number near one is not enough: quadrature takes the mass
      of panels far out in either tail from them.
    - `icdf`, finite for every u in [0, 1] and with all digits of quantiles near zero.
    - `mirrored`, the distribution of −x: its lower tail is where `isf` finds the upper quantiles.
    - `moments`, NaN or infinite where they do not exist.
    - `bounded` and `heavy_tailed`, which choose the coordinates of the quadrature, and `terms`, what a
      node costs, unless the defaults are right.

    A row's score is to be the same in any batch, to the bit. Of PyTorch's functions exp, expm1, log,
    log1p, sqrt, erfc and asinh do not mind where in a tensor a number stands; sigmoid, softplus, pow,
    hypot, sinh and cosh do.

    What follows
    ------------
    `log_prob_of` single values, `density`, `isf`, `mass` and `log_mass` between two points; `transport`
    of uniforms to draws with its inverse `position`, and stratified `nodes_around` data; `select`,
    `flatten` and `double`. A subclass replaces those that it can do faster, or with more digits.
    """

    bounded: bool = False  # zero density beyond bounds that are the user's
    heavy_tailed: bool = False  # tails that fall like a power of x rather than exponentially
    terms: int = 1  # numbers that evaluating the density at a node takes

    @property
    @abstractmethod
    def batch(self) -> Float[Tensor, "*B"]:
        """A tensor of the batch's shape, type and device."""

    @abstractmethod
    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the same kind of proposal with a function applied to its parameters.

        Parameters
        ----------
        change
            a function of one tensor, applied to each tensor of parameters: it indexes or reshapes
            the axes of the batch, or changes the type.
        """

    @abstractmethod
    def log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return log q(x) at each node.

        Parameters
        ----------
        x
            S nodes of each conditional.
        """

    @abstractmethod
    def cdf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return the probability of lying below each node, with all its digits in the lower tail.

        Parameters
        ----------
        x
            S nodes of each conditional.
        """

    @abstractmethod
    def sf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return the probability of lying above each node, with all its digits in the upper tail.

        Parameters
        ----------
        x
            S nodes of each conditional.
        """

    @abstractmethod
    def icdf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return quantiles: the points with these probabilities below them.

        Parameters
        ----------
        u
            S probabilities of each conditional, in [0, 1].
        """

    @abstractmethod
    def mirrored(self) -> Self:
        """Return the distribution of −x."""

    @abstractmethod
    def moments(self) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        """Return mean and standard deviation of each conditional.

        Returns
        -------
        mean : tensor [*B]
            NaN where there is none.
        deviation : tensor [*B]
            NaN or infinite where there is none.
        """

    def log_prob_of(self, x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return the log density at one value of each conditional.

        Parameters
        ----------
        x
            one value of each conditional.
        """
        return self.log_prob(x[..., None])[..., 0]

    def density(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return q(x) at each node, which may underflow to zero in the tails.

        Parameters
        ----------
        x
            S nodes of each conditional.
        """
        return self.log_prob(x).exp()

    def isf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Return quantiles from above: the points with these probabilities above them.

        Parameters
        ----------
        u
            S probabilities of each conditional, however small.
        """
        return -self.mirrored().icdf(u)

    def masses(self, points: Float[Tensor, "*B S"]) -> Float[Tensor, "*B T"]:
        """Return the probabilities between neighbouring points of each conditional.

        Parameters
        ----------
        points
            S rising points; there is one probability less.
        """
        below, above = self.cdf(points), self.sf(points)
        # A difference of numbers near one has lost the digits of an upper tail.
        lower, upper = below.diff(dim=-1), -above.diff(dim=-1)
        return torch.where(below[..., :-1] < 0.5, lower, upper)

    def log_mass(self, low: Float[Tensor, "*B"], width: float) -> Float[Tensor, "*B"]:
        """Return the log probability of an interval, also where the probability rounds to zero.

        Parameters
        ----------
        low
            where the interval of each conditional begins.
        width
            how long the intervals are, all the same.
        """
        mass = self.mass(torch.stack((low, low + width), -1))
        middle = self.log_prob_of(low + 0.5 * width) + math.log(width)
        return torch.where(mass > 0, mass.log(), middle)

    def about(self, levels: tuple[float, ...]) -> Float[Tensor, "N R"]:
        """Return points with about these probabilities below them, and those with as much above.

        A flat batch is asked only where the points themselves do not matter, as where panels meet.

        Parameters
        ----------
        levels
            rising probabilities, none above one half; the points for one half are not repeated.
        """
        u = self.batch.new_tensor(levels)
        above = u[u < 0.5].flip(0).expand(len(self.batch), -1)
        return torch.cat((self.icdf(u.expand(len(self.batch), -1)), self.isf(above)), -1)

    def in_single(self) -> Measure:
        """Return the same distributions, faster and in single precision where that is possible."""
        return self

    def transport(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Transform uniforms to draws; the map need not be monotone.

        Parameters
        ----------
        u
            S uniforms of each conditional, in [0, 1).
        """
        return self.icdf(u)

    def position(self, x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return a uniform that `transport` maps to x, chosen at random if there are several.

        Parameters
        ----------
        x
            one value of each conditional.
        """
        return self.cdf(x[..., None])[..., 0]

    def nodes_around(
        self, x: Float[Tensor, "*B"], nodes: int
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B S"], Int[Tensor, "*B"]]:
        """Draw stratified nodes, one of which is replaced by the data.

        Parameters
        ----------
        x
            the value of the data in each conditional.
        nodes
            S, the number of strata of [0, 1).

        Returns
        -------
        log_q : tensor [*B]
            log density of x.
        points : tensor [*B, S]
            one point in each stratum, x in its own.
        own : tensor [*B]
            the number of the stratum that holds x.
        """
        log_q = self.log_prob_of(x)
        with torch.no_grad():
            y = self.transport(stratified_uniforms(self.batch, nodes))
            own = (self.position(x) * nodes).long().clamp(0, nodes - 1)
            return log_q, y.scatter(-1, own[..., None], x[..., None]), own

    def select(self, index: Int[Tensor, " P"]) -> Self:
        """Return the proposals of some conditionals of a flat batch.

        Parameters
        ----------
        index
            numbers of the conditionals; one may be named more than once.
        """
        return self.changed(lambda part: part[index])

    def flatten(self) -> Self:
        """Return the proposals with a single batch axis."""
        axes = self.batch.ndim
        return self.changed(lambda part: part.reshape(-1, *part.shape[axes:]))

    def double(self) -> Self:
        """Return the proposals in float64."""
        return self.changed(Tensor.double)


class Head(torch.nn.Module, ABC):
    """Turns φ, the numbers that the ARNN emits for a conditional, into its proposal.

    To write
    --------
    - `from_config`, which reads the settings it needs, `size`, how many numbers φ are, and
      `initial_bias`, which φ training starts from.
    - `forward`, which builds the proposal in float32 at least: tails do not survive bfloat16.
    - `bounded` and `terms`, as the proposal's; `silent`, if a fresh model is to be the initial
      proposal whatever the row; `anchor` and `anchored_to`, if that is a mixture of all columns.

    Buffers of a head are saved with the model.
    """

    bounded: ClassVar[bool] = False
    silent: ClassVar[bool] = False
    size: int
    terms: int = 1

    @classmethod
    @abstractmethod
    def from_config(
        cls, config: ModelConfig, shift: Float[Tensor, " D"], scale: Float[Tensor, " D"]
    ) -> Self:
        """Make a head from the settings of a model.

        Parameters
        ----------
        config
            settings of the model; a head reads the few that concern it.
        shift
            what is subtracted from each column of the data before networks and proposals see it.
        scale
            what each column is then divided by. Both serve heads with numbers in the units of the
            data.
        """

    @abstractmethod
    def initial_bias(self) -> Float[Tensor, " P"]:
        """Return φ at the start of training."""

    @abstractmethod
    def forward(
        self, phi: Float[Tensor, "*B P"], feature: int | None, past: Float[Tensor, "*A N"]
    ) -> Proposal:
        """Build the proposals of all D features, or of one.

        Parameters
        ----------
        phi
            what the ARNN emits: [..., D, P] for all features, [..., P] for one.
        feature
            number of the feature; None for all of them.
        past
            standardised rows that the ARNN read: all columns, or those before the feature.
        """

    def anchor(self, log_weights: Any, means: Any, factors: Any, *, memory: bool = True) -> None:
        """Start from a joint mixture of K Gaussians over all standardised columns.

        Parameters
        ----------
        log_weights
            log weights [K].
        means
            means [K, D].
        factors
            lower Cholesky factors [K, D, D] of the covariances.
        memory
            whether the components' weights depend on the columns before, as in the joint mixture.
        """
        raise AemError(
            f"a {type(self).__name__} cannot be initialised from a mixture of all columns"
        )

    def anchored_to(self) -> tuple[Any, Any, Any]:
        """Return the joint mixture that `anchor` was given.

        Returns
        -------
        log_weights : array [K]
            log weights.
        means : array [K, D]
            means.
        factors : array [K, D, D]
            lower Cholesky factors of the covariances.
        """
        raise AemError(f"a {type(self).__name__} was not initialised from a mixture of all columns")


def head_class(name: str) -> type[Head]:
    """Import and return the head of a registered kind of proposal.

    Parameters
    ----------
    name
        a key of `aem.config.PROPOSALS`.
    """
    head = PROPOSALS[name].head
    if isinstance(head, str):
        module, _, attribute = head.partition(":")
        head = getattr(import_module(module), attribute)
    return cast("type[Head]", head)
