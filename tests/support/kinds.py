"""Every kind of proposal in the registry, with settings to try it, and one that is defined here.

Whoever adds a proposal adds a line to `aem.config.PROPOSALS`; what it needs beyond the default
settings stands in SETTINGS. The logistic distribution is a proposal of a user's own: a class for it,
one for its head, and the line that registers it.
"""

import math
from collections.abc import Callable
from typing import Any, Self

import pytest
import torch
from jaxtyping import Float
from scipy import special, stats
from torch import Tensor

from aem import AEM, ModelConfig
from aem.conditionals.batch import EnergyForm
from aem.conditionals.proposals.base import Head, Proposal, head_class
from aem.config import PROPOSALS, Family
from tests.support.rough import rough_model

FALSE_ALARM = 1e-6  # of each Kolmogorov–Smirnov test, were its seed not fixed


class Logistic(Proposal):
    """A logistic distribution, in closed form."""

    def __init__(self, loc: Float[Tensor, "*B"], scale: Float[Tensor, "*B"]) -> None:
        self.loc, self.scale = loc, scale

    @property
    def batch(self) -> Float[Tensor, "*B"]:
        return self.loc

    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(change(self.loc), change(self.scale))

    def _standardise(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        return (x - self.loc[..., None]) / self.scale[..., None]

    def log_prob(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        z = self._standardise(x).abs()
        return -z - 2 * torch.log1p(torch.exp(-z)) - self.scale.log()[..., None]

    def cdf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        z = self._standardise(x)
        small = torch.exp(-z.abs())
        return torch.where(z < 0, small, torch.ones_like(z)) / (1 + small)

    def sf(self, x: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        return self.mirrored().cdf(-x)

    def icdf(self, u: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        u = u.clamp(torch.finfo(u.dtype).tiny, 1 - torch.finfo(u.dtype).eps / 2)
        return self.loc[..., None] + self.scale[..., None] * (u.log() - torch.log1p(-u))

    def mirrored(self) -> Self:
        return type(self)(-self.loc, self.scale)

    def moments(self) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        return self.loc, math.pi / math.sqrt(3) * self.scale


class LogisticHead(Head):
    """Two numbers φ: a location, and a scale through its logarithm."""

    size = 2

    @classmethod
    def from_config(
        cls, config: ModelConfig, shift: Float[Tensor, " D"], scale: Float[Tensor, " D"]
    ) -> Self:
        return cls()

    def initial_bias(self) -> Float[Tensor, " P"]:
        return torch.zeros(2)

    def forward(
        self, phi: Float[Tensor, "*B P"], feature: int | None, past: Float[Tensor, "*A N"]
    ) -> Logistic:
        phi = phi.to(torch.promote_types(phi.dtype, torch.float32))
        return Logistic(phi[..., 0], (0.5 * torch.tanh(phi[..., 1])).exp())


PROPOSALS["logistic"] = Family(LogisticHead)

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "uniform": {"uniform": {"bounds": ((-3.0, 5.0),) * 2}},
    "student_t": {
        f"student_t of {degrees:g}": {"degrees_of_freedom": degrees}
        for degrees in (1.0, 1.5, 3.0, 30.0)
    },
}
# Each kind of proposal with its settings, by a name of its own.
KINDS: dict[str, dict[str, Any]] = {
    name: {"proposal": kind, **settings}
    for kind in PROPOSALS
    for name, settings in SETTINGS.get(kind, {kind: {}}).items()
}
every_kind = pytest.mark.parametrize("kind", KINDS)
# For what takes a model, without those in between.
most_kinds = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("student_t of 1.5", "student_t of 30")]
)
every_form = pytest.mark.parametrize("form", ["relative", "literal"])


def configured(kind: str, **settings: Any) -> ModelConfig:
    return ModelConfig(features=2, components=3, min_scale=0.05, **KINDS[kind], **settings)


def head_of(kind: str) -> Head:
    config = configured(kind)
    head = head_class(config.proposal).from_config(config, torch.zeros(2), torch.ones(2))
    return head.double()


def proposal_of(kind: str, rows: int = 2, seed: int = 0) -> Proposal:
    """Random proposals of a few rows, [rows, 2], in float64."""
    torch.manual_seed(seed)
    head = head_of(kind)
    phi = torch.randn(rows, 2, head.size, dtype=torch.float64)
    proposal: Proposal = head(phi, None, torch.randn(rows, 2, dtype=torch.float64))
    return proposal


def model_of(kind: str, form: EnergyForm = "relative", size: float = 1.0) -> AEM:
    """A model with a random energy of a few waves."""
    return rough_model(form, size=size, top=6.0, **KINDS[kind])


def levels(q: Proposal, *values: float) -> Tensor:
    """The same probabilities for all conditionals of a batch."""
    return q.batch.new_tensor(values).expand(*q.batch.shape, -1)


def uniformity(u: Tensor) -> float:
    """The Kolmogorov–Smirnov test's p-value for uniforms on [0, 1]."""
    return float(stats.kstest(u.double().flatten().numpy(), "uniform").pvalue)


TAIL = tuple(10.0**-k for k in (30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4))
BODY = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


def points_of(q: Proposal) -> Tensor:
    """From the quantile of 1e-30 to that of 1 − 1e-30, or from bound to bound, [*B, R]."""
    tail = TAIL if not q.bounded else (0.0,)
    upper = q.isf(levels(q, *reversed(tail)))
    return torch.cat((q.icdf(levels(q, *tail, *BODY)), upper), -1)


def integrals(function: Callable[[Tensor], Tensor], points: Tensor, rtol: float) -> Tensor:
    """∫ f(x) dx between neighbours of points [B, R], by Gauss and Legendre on ever smaller pieces.

    The function takes nodes [B, S]. Halving ends when no integral changes by `rtol` of itself, or by a
    thousandth of that of the whole.
    """
    nodes, weights = (torch.from_numpy(part) for part in special.roots_legendre(16))
    last = torch.full_like(points[:, 1:], torch.inf)
    for halvings in range(12):
        count = 2**halvings
        places = ((torch.arange(count)[:, None] + 0.5 * (1 + nodes)) / count).flatten()
        x = points[:, :-1, None] + points.diff()[..., None] * places
        values = function(x.flatten(1)).reshape(*last.shape, count, len(nodes))
        found: Tensor = (values @ weights).sum(-1) * points.diff() / (2 * count)
        whole = found.sum(-1, keepdim=True).abs()
        if bool(((found - last).abs() <= rtol * torch.maximum(found.abs(), 1e-3 * whole)).all()):
            return found
        last = found
    raise AssertionError("the integrals do not settle")
