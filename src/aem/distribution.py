"""The distribution a model stands for: exact log densities, conditionals and samples.

Scores are computed in float64 whatever the type of the model: the same row then gives the same
number in any batch, because rounding is far below anything that steers the adaptive rule.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import Distribution, constraints

from aem import sampling
from aem.errors import AemError
from aem.estimation import log_prob_estimate
from aem.normalizers import Quadrature, normalizer, with_tolerance

if TYPE_CHECKING:
    from aem.model import AEM

Method = Literal["exact", "inverse", "resample", "proposal"]


@dataclass(frozen=True)
class Scores:
    """Log densities of B rows by conditional, with the error of each normaliser."""

    log_prob: Float[Tensor, "B D"]
    error: Float[Tensor, "B D"]
    log_proposal: Float[Tensor, "B D"]
    log_z: Float[Tensor, "B D"]
    nodes: Int[Tensor, "B D"]
    converged: Bool[Tensor, "B D"]


class AEMDistribution(Distribution):
    """p(x), or p(x | context): what `model()` and `model(context)` return.

    `batch_shape` is that of the context (one distribution a context row), `event_shape` is (D,).
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    has_rsample = False

    def __init__(self, model: "AEM", context: Float[Tensor, "*B Q"] | None = None) -> None:
        self.model = model
        self.context = context
        batch = torch.Size() if context is None else context.shape[:-1]
        super().__init__(batch, torch.Size((model.config.features,)), validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """The whole space."""
        return constraints.real_vector

    @cached_property
    def _double(self) -> "AEM":
        return self.model.in_double()

    def _rows(self, x: Tensor) -> tuple[Tensor, Tensor | None, torch.Size]:
        """Rows and their contexts as [N, D] and [N, Q], and the batch shape to give back."""
        features = self.model.config.features
        if x.ndim == 0 or x.shape[-1] != features:
            found = x.shape[-1] if x.ndim else 0
            raise AemError(f"the data has {found} columns, the model has {features}")
        if not bool(torch.isfinite(x).all()):
            where = (~torch.isfinite(x)).reshape(-1, features).nonzero()[0].tolist()
            name = self.model.columns[where[1]]
            raise AemError(f"row {where[0]} of column '{name}' is not finite")
        shape = torch.broadcast_shapes(x.shape[:-1], self.batch_shape)
        rows = x.expand(*shape, features).reshape(-1, features)
        if self.context is None:
            return rows, None, shape
        context = self.context.expand(*shape, self.context.shape[-1])
        return rows, context.reshape(-1, context.shape[-1]), shape

    def log_prob(self, value: Float[Tensor, "*B D"]) -> Float[Tensor, "*B"]:
        """Log density in the units of the data, to 1e-3 nats (`log_prob_and_error` for other).

        In training mode this is the differentiable importance-sampling estimate with 20 nodes.
        """
        if self.model.training:
            rows, context, shape = self._rows(value)
            terms, _ = self.estimate(rows, context)
            return terms.sum(-1).reshape(shape)
        return self.log_prob_and_error(value)[0]

    def estimate(
        self, rows: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None, nodes: int = 20
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]]:
        """(log p̂, log q) by conditional with S random nodes, differentiable, as in training."""
        model = self.model
        z = model.standardise(rows)
        conditionals = model.conditionals(z, model.standardise_context(context))
        log_p, log_q = log_prob_estimate(conditionals, z, nodes=nodes, estimator="importance")
        return log_p - model.scale.log(), log_q - model.scale.log()

    def log_prob_and_error(
        self, value: Float[Tensor, "*B D"], tolerance: float | None = None
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        """Log density and a bound on its error, both in nats, by quadrature."""
        _, _, shape = self._rows(value)
        scores = self.scores(value, with_tolerance(Quadrature(), tolerance))
        dtype = value.dtype
        total, error = scores.log_prob.sum(-1), scores.error.sum(-1)
        return total.reshape(shape).to(dtype), error.reshape(shape).to(dtype)

    @torch.no_grad()
    def scores(
        self, value: Float[Tensor, "*B D"], settings: Quadrature | None = None
    ) -> Scores:
        """Everything the quadrature knows about each conditional of each row."""
        settings = settings or Quadrature()
        rows, context, _ = self._rows(value)
        features = self.model.config.features
        # The adaptive rule holds the panels of a whole block at once; most need a few dozen.
        block = max(settings.memory // (features * 32 * 1024), 1)
        parts: list[Scores] = []
        for start in range(0, len(rows), block):
            chunk = slice(start, start + block)
            parts.append(self._score_block(rows[chunk], None if context is None else context[chunk], settings))
        if not parts:
            parts.append(self._score_block(rows, context, settings))
        return Scores(*(torch.cat([getattr(p, n) for p in parts]) for n in Scores.__annotations__))

    def _score_block(
        self, rows: Float[Tensor, "B D"], context: Tensor | None, settings: Quadrature
    ) -> Scores:
        model = self._double
        z = model.standardise(rows.double())
        context = model.standardise_context(None if context is None else context.double())
        flat = model.conditionals(z, context).flatten()
        point = z.reshape(-1, 1)
        log_q = flat.proposal.log_prob(point)[:, 0]
        log_w = flat.log_weight(point)[:, 0]
        computed = normalizer(flat, settings, tolerance=settings.tolerance / z.shape[1])
        log_scale = model.scale.log()
        log_q = log_q.reshape(z.shape) - log_scale
        return Scores(
            log_q + (log_w - computed.log_z).reshape(z.shape),
            computed.error.reshape(z.shape),
            log_q,
            computed.log_z.reshape(z.shape),
            computed.nodes.reshape(z.shape),
            computed.converged.reshape(z.shape),
        )

    @torch.no_grad()
    def sample(
        self, sample_shape: torch.Size | tuple[int, ...] = (), method: Method = "exact"
    ) -> Float[Tensor, "*S D"]:
        """Draw rows: exactly, by the paper's resampling, or from the proposal alone."""
        shape = torch.Size(sample_shape) + self.batch_shape
        context = self.context
        if context is not None:
            context = context.expand(*shape, context.shape[-1]).reshape(-1, context.shape[-1])
        model = self.model
        was_training = model.training
        model.eval()
        try:
            z = sampling.draw(model, shape.numel(), model.standardise_context(context), method)
        finally:
            model.train(was_training)
        return (model.shift + model.scale * z).reshape(shape + self.event_shape)
