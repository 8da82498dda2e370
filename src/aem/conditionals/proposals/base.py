"""What a proposal q(x_d; φ_d) is: the tractable distribution each energy is measured against.

A *head* turns the numbers φ that the ARNN emits into a proposal for a batch of conditionals. A new
kind of proposal is one file with both, and one line in `aem.config.PROPOSALS`.

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
    """Cut [0, 1) into S equal strata and draw one uniform in each."""
    noise = uniforms((*like.shape, nodes), like)
    u = (torch.arange(nodes, dtype=like.dtype, device=like.device) + noise) / nodes
    return u.clamp(max=1 - torch.finfo(like.dtype).eps / 2)  # rounding can reach one


class Proposal(ABC):
    """A distribution for each conditional of a batch.

    To write
    --------
    - `batch`, a tensor of the batch's shape, type and device, and `changed`, which applies a function
      to every tensor of parameters. Their leading axes are those of the batch.
    - `log_prob`, differentiable in the parameters: training maximises it.
    - `cdf` and `sf`, each with all its digits where it is small. One number near one is not enough:
      quadrature takes the mass of panels far out in either tail from them.
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
    `density`, `isf`, `mass` and `log_mass` between two points; `transport` of uniforms to draws with
    its inverse `position`, and stratified `nodes_around` data; `select`, `flatten` and `double`. A
    subclass replaces those that it can do faster, or with more digits.
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
        """The same kind of proposal, its parameters put through a function."""

    @abstractmethod
    def log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Log density at each node."""

    @abstractmethod
    def cdf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying below each node, with all its digits in the lower tail."""

    @abstractmethod
    def sf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Probability of lying above each node, with all its digits in the upper tail."""

    @abstractmethod
    def icdf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Quantiles."""

    @abstractmethod
    def mirrored(self) -> Self:
        """The distribution of −x."""

    @abstractmethod
    def moments(self) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        """Mean and standard deviation; NaN, or an infinite deviation, where they do not exist."""

    def density(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Density at each node, which far out may round to zero."""
        return self.log_prob(x).exp()

    def isf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Quantiles from above: where the probability of lying above is u, however small."""
        return -self.mirrored().icdf(u)

    def mass(self, ends: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B"]:
        """Probability between two points."""
        below, above = self.cdf(ends), self.sf(ends)
        # A difference of numbers near one has lost the digits of an upper tail.
        lower, upper = below.diff(dim=-1)[..., 0], -above.diff(dim=-1)[..., 0]
        return torch.where(below[..., 0] < 0.5, lower, upper)

    def log_mass(self, low: Float[Tensor, "*B"], width: float) -> Float[Tensor, "*B"]:
        """Log probability between `low` and `low` + `width`, also where it is no positive number."""
        mass = self.mass(torch.stack((low, low + width), -1))
        middle = self.log_prob((low + 0.5 * width)[..., None])[..., 0] + math.log(width)
        return torch.where(mass > 0, mass.log(), middle)

    def transport(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        """Send uniforms to draws; not monotone in general."""
        return self.icdf(u)

    def position(self, x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """A uniform that `transport` would send to x, drawn at random where there are several."""
        return self.cdf(x[..., None])[..., 0]

    def nodes_around(
        self, x: Float[Tensor, "*B"], nodes: int
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B S"], Int[Tensor, "*B"]]:
        """log q(x), one point in each of S strata with x in its own, and which that is."""
        log_q = self.log_prob(x[..., None])[..., 0]
        with torch.no_grad():
            y = self.transport(stratified_uniforms(self.batch, nodes))
            own = (self.position(x) * nodes).long().clamp(0, nodes - 1)
            return log_q, y.scatter(-1, own[..., None], x[..., None]), own

    def select(self, index: Int[Tensor, " P"]) -> Self:
        """The proposals of some conditionals of a flat batch."""
        return self.changed(lambda part: part[index])

    def flatten(self) -> Self:
        """One batch axis."""
        axes = self.batch.ndim
        return self.changed(lambda part: part.reshape(-1, *part.shape[axes:]))

    def double(self) -> Self:
        """The same in float64."""
        return self.changed(Tensor.double)


class Head(torch.nn.Module, ABC):
    """From φ, what the ARNN says of a conditional, to its proposal.

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
        """A head as the settings want it, for columns that are standardised like this."""

    @abstractmethod
    def initial_bias(self) -> Float[Tensor, " P"]:
        """The φ that training starts from."""

    @abstractmethod
    def forward(
        self, phi: Float[Tensor, "*B P"], feature: int | None, past: Float[Tensor, "*A N"]
    ) -> Proposal:
        """Build the proposals of all D features, φ [..., D, P], or of one given the columns before."""

    def anchor(self, log_weights: Any, means: Any, factors: Any, *, memory: bool = True) -> None:
        """Start from a mixture of standardised columns: K weights, means [D], Cholesky factors."""
        raise AemError(
            f"a {type(self).__name__} cannot be initialised from a mixture of all columns"
        )

    def anchored_to(self) -> tuple[Any, Any, Any]:
        """Log weights, means and Cholesky factors of the mixture it started from."""
        raise AemError(f"a {type(self).__name__} was not initialised from a mixture of all columns")


def head_class(name: str) -> type[Head]:
    """The head of a registered kind of proposal; its module is imported when it is first asked for."""
    head = PROPOSALS[name].head
    if isinstance(head, str):
        module, _, attribute = head.partition(":")
        head = getattr(import_module(module), attribute)
    return cast("type[Head]", head)
