"""The distribution a model stands for: exact log densities, conditionals and samples.

Scores are computed in float64 whatever the type of the model, but for energies where float32 will do.
On a CPU the same row gives the same number in any batch, bit for bit (`aem.nn.rowwise`); on a GPU up to
rounding, which is far below anything that steers the adaptive rule.
"""

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, SupportsIndex

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution, constraints

from aem.base.randomness import streaming_from
from aem.conditionals.conditional import Conditional
from aem.conditionals.estimates import log_prob_by_importance, log_prob_estimate
from aem.conditionals.normalizer import Quadrature, with_tolerance
from aem.config import RESAMPLED
from aem.errors import AemError
from aem.model import sampling
from aem.model.gradients import Draws, LogDensity, ParameterGradients, learning, transforming
from aem.model.moments import DRAWS, Moments, entropy_and_error, moments, register_divergences
from aem.model.sampling import Drawing
from aem.model.scoring import Scores, refuse_not_finite, score, shared_pasts
from aem.nn.kernels import applied

if TYPE_CHECKING:
    from aem.model.aem import AEM

LEAST_BYTES = 4  # of results: half precision has no digits for log densities
TRAINING_NODES = 20  # of a conditional, in training mode
# Of draws: a shape, or their number. NumPy's whole numbers count as such.
Shape = torch.Size | Sequence[SupportsIndex] | SupportsIndex
Method = Literal["exact", "inverse", "resample", "proposal"]


class AEMDistribution(Distribution):
    """p(x), or p(x | context): what `model()` and `model(context)` return.

    `batch_shape` is that of the context (one distribution per row of it), `event_shape` is (D,).
    Densities are in the units of the data and with respect to Lebesgue measure. A distribution
    follows its model: it always has the weights that the model has when it is asked.

    Parameters
    ----------
    model
        the model.
    context
        one context [Q] or rows of them [*B, Q], in their own units; None for a model without.
    validate_args
        accepted as by other distributions; arguments are always checked.

    Examples
    --------
    >>> import torch
    >>> from aem import AEM, ModelConfig
    >>> distribution = AEM(ModelConfig(features=3))()
    >>> log_p, error = distribution.log_prob_and_error(torch.zeros(5, 3))  # nats
    >>> log_p.shape, bool((error < 1e-3).all())
    (torch.Size([5]), True)
    >>> distribution.sample((1000,)).shape
    torch.Size([1000, 3])
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    has_rsample = True
    _copied: tuple[list[Tensor], "AEM"] | None = None  # the model's weights, and it in float64

    def __init__(
        self,
        model: "AEM",
        context: Tensor | ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.model = model
        self.context = None if context is None else as_rows(context, "context", model)
        if self.context is not None and not self.context.ndim:
            raise AemError("a context is a vector, or rows of them, not a number")
        batch = torch.Size() if self.context is None else self.context.shape[:-1]
        super().__init__(batch, torch.Size((model.config.features,)), validate_args=validate_args)

    def __repr__(self) -> str:
        shapes = f"batch_shape={tuple(self.batch_shape)}, event_shape={tuple(self.event_shape)}"
        return f"{type(self).__name__}({shapes})"

    def expand(
        self,
        batch_shape: torch.Size | Sequence[int],
        _instance: "AEMDistribution | None" = None,
    ) -> "AEMDistribution":
        """Return the same distribution with another batch shape, which this one's expands to.

        Parameters
        ----------
        batch_shape
            the batch shape wanted.
        """
        shape = torch.Size(batch_shape)
        try:
            torch.empty(self.batch_shape).expand(shape)
        except RuntimeError as error:
            raise AemError(
                f"a batch of shape {tuple(self.batch_shape)} cannot be expanded to {tuple(shape)}"
            ) from error
        new: AEMDistribution = self._get_checked_instance(  # type: ignore[no-untyped-call]
            AEMDistribution, _instance
        )
        new.model, new._copied = self.model, self._copied
        new.context = self.context
        if self.context is not None:
            new.context = self.context.expand(*shape, self.context.shape[-1])
        super(AEMDistribution, new).__init__(shape, self.event_shape, validate_args=False)
        return new

    @property
    def support(self) -> constraints.Constraint:
        """The whole space, or the box between the bounds of a uniform proposal, as a constraint."""
        if not self.model.head.bounded or not self.model.config.bounds:
            return constraints.real_vector
        like = self.model.standardisation.shift
        low, high = torch.tensor(self.model.config.bounds).to(like).unbind(-1)
        return constraints.independent(constraints.interval(low, high), 1)

    @property
    def _double(self) -> "AEM":
        """The model as it is now, in float64: copied where it has changed since the last copy."""
        state = [*self.model.parameters(), *self.model.buffers()]
        copied = self._copied
        if copied is None or not all(map(_same, copied[0], state)):
            kept = [t.detach().clone().requires_grad_(t.requires_grad) for t in state]
            copied = self._copied = kept, self.model.in_double()
        return copied[1]

    def rows_and_contexts(self, x: Tensor | ArrayLike) -> tuple[Tensor, Tensor | None, torch.Size]:
        """Return rows [N, D] and their contexts [N, Q], checked and brought to one shape.

        Parameters
        ----------
        x
            rows [*B, D] in the units of the data.

        Returns
        -------
        rows : tensor [N, D]
            the rows, one after the other.
        context : tensor [N, Q] or None
            the context of each.
        shape : torch.Size
            the batch shape that results are to have.
        """
        features = self.model.config.features
        x = as_rows(x, "data", self.model)
        if x.ndim == 0 or x.shape[-1] != features:
            found = x.shape[-1] if x.ndim else 0
            raise AemError(f"the data has {found} columns, the model has {features}")
        if not transforming():
            refuse_not_finite(x, self.model.columns)
        try:
            shape = torch.broadcast_shapes(x.shape[:-1], self.batch_shape)
        except RuntimeError as error:
            shapes = f"rows {tuple(x.shape[:-1])} and contexts {tuple(self.batch_shape)}"
            raise AemError(f"{shapes} do not fit together") from error
        rows = x.expand(*shape, features).reshape(-1, features)
        return rows, self._contexts(shape), shape

    def log_prob(self, value: Tensor | ArrayLike) -> Float[Tensor, "*B"]:
        """Return log densities in the units of the data, to 1e-3 nats.

        In evaluation mode, in which `fit` and `load_model` leave a model, they are computed by
        quadrature. Where the rows or the context require gradients, these are right to about three
        digits, and so are those of the parameters; `log_prob_and_error` has more digits with a
        smaller tolerance. Where neither does, the result has no gradient.

        In training mode this is an importance-sampling estimate with 20 random nodes, too high on
        average, with gradients in everything. To train a model, minimise `AEM.loss`.

        Parameters
        ----------
        value
            rows [*B, D] in the units of the data; their shape is broadcast with that of the context.
        """
        if self.model.training:
            if transforming():
                raise AemError(
                    "torch.func cannot transform the random estimate of a model in training mode: "
                    "call the model's eval() first"
                )
            rows, context, shape = self.rows_and_contexts(value)
            model = self.model
            z = model.standardise(rows)
            conditionals = model.conditionals(z, model.standardise_context(context))
            terms = log_prob_by_importance(conditionals, z, nodes=TRAINING_NODES)
            log_prob = (terms + model.standardisation.log_slope).sum(-1).reshape(shape)
            return log_prob.to(self._precision(rows))
        return self.log_prob_and_error(value)[0]

    def estimate(
        self, rows: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None, nodes: int = 20
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]]:
        """Estimate log densities by conditional with random nodes, differentiably, as in training.

        Parameters
        ----------
        rows
            rows in the units of the data.
        context
            the context of each row, in its own units, or None.
        nodes
            S, the number of draws of the proposal per conditional.

        Returns
        -------
        log_p : tensor [B, D]
            importance-sampling estimates of log p(x_d | x_<d).
        log_q : tensor [B, D]
            log densities of the proposal.
        """
        model = self.model
        z = model.standardise(rows)
        conditionals = model.conditionals(z, model.standardise_context(context))
        log_p, log_q, _ = log_prob_estimate(conditionals, z, nodes=nodes, estimator="importance")
        log_slope = model.standardisation.log_slope
        return log_p + log_slope, log_q + log_slope

    def log_prob_and_error(
        self, value: Tensor | ArrayLike, tolerance: float | None = None
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        """Compute log densities by quadrature, with their errors, whatever the mode of the model.

        The log densities are differentiable in the rows, the context and the parameters, if the rows
        or the context require gradients. An energy network with ReLUs has kinks, so a gradient has
        fewer digits than its log density: about three at the default tolerance, five at 1e-9.

        Rows whose tolerance could not be met are named in an `AccuracyWarning`; their errors are
        what was reached.

        Parameters
        ----------
        value
            rows in the units of the data; their shape is broadcast with that of the context.
        tolerance
            largest error per row, in nats; 1e-3 without one.

        Returns
        -------
        log_prob : tensor [*B]
            log density of each row, in nats.
        error : tensor [*B]
            its estimated error, in nats.
        """
        rows, context, shape = self.rows_and_contexts(value)
        settings, dtype = with_tolerance(Quadrature(), tolerance), self._precision(rows)
        if transforming() or _recorded(rows, context):
            log_prob, error = self._differentiable(rows, context, settings)
        else:
            with torch.no_grad():
                scores = score(self._double, rows, context, settings)
            scores.warn(settings.tolerance)
            log_prob, error = scores.log_prob, scores.error
        return log_prob.sum(-1).reshape(shape).to(dtype), error.sum(-1).reshape(shape).to(dtype)

    def _differentiable(
        self, rows: Tensor, context: Tensor | None, settings: Quadrature
    ) -> tuple[Tensor, Tensor]:
        """The same numbers by conditional, with gradients in rows, context and parameters."""
        work = LogDensity(lambda: self._double, settings)
        parameters = learning(self.model)
        log_prob, error = work(rows, context)
        if parameters and not transforming():
            own = rows.detach(), None if context is None else context.detach()
            log_prob = log_prob + applied(
                ParameterGradients, work, *own, log_prob.detach(), *parameters
            )
        return log_prob, error

    @torch.no_grad()
    def scores(self, value: Tensor | ArrayLike, settings: Quadrature | None = None) -> Scores:
        """Return all that the quadrature knows about each conditional of each row, with rows flattened.

        Parameters
        ----------
        value
            rows in the units of the data.
        settings
            tolerance, nodes and memory; the defaults of `Quadrature` without any.
        """
        rows, context, _ = self.rows_and_contexts(value)
        return score(self._double, rows, context, settings or Quadrature())

    @torch.no_grad()
    def conditionals(
        self, value: Tensor | ArrayLike, settings: Quadrature | None = None
    ) -> list[Conditional]:
        """Return p(x_d | x_<d) for each feature d, with densities, quantiles and regions.

        Parameters
        ----------
        value
            rows in the units of the data: the columns before d are what is given.
        settings
            tolerance (per row, shared by its columns), nodes and memory.

        Examples
        --------
        >>> import torch
        >>> from aem import AEM, ModelConfig
        >>> third = AEM(ModelConfig(features=3))().conditionals(torch.zeros(5, 3))[2]
        >>> third.mean().shape, third.quantile(torch.tensor([0.05, 0.95])).shape
        (torch.Size([5]), torch.Size([5, 2]))
        """
        rows, context, shape = self.rows_and_contexts(value)
        model = self._double
        z = model.standardise(rows.double())
        context = model.standardise_context(None if context is None else context.double())
        every = model.conditionals(z, context).flatten()
        centre = model.standardisation.centre(rows.double())
        features, settings = z.shape[1], settings or Quadrature()
        index = torch.arange(len(z), device=z.device) * features
        return [
            Conditional(
                every.select(index + d),
                value=rows[:, d].double(),
                shift=centre[:, d],
                scale=model.standardisation.scale[d],
                groups=groups,
                shape=shape,
                column=model.columns[d],
                settings=with_tolerance(settings, settings.tolerance / features),
            )
            for d, groups in enumerate(shared_pasts(z, context))
        ]

    @torch.no_grad()
    def cdf(self, value: Tensor | ArrayLike) -> Float[Tensor, "*B D"]:
        """Return u_d = F(x_d | x_<d), the PIT values of each row: uniform if the model is right.

        This is Rosenblatt's transform; `icdf` is its inverse.

        Parameters
        ----------
        value
            rows in the units of the data.
        """
        rows, context, shape = self.rows_and_contexts(value)
        u = sampling.pit(self._double, rows.double(), self._doubled(context), Quadrature())
        return u.reshape(shape + self.event_shape).to(self._precision(rows))

    @torch.no_grad()
    def icdf(self, value: Tensor | ArrayLike) -> Float[Tensor, "*B D"]:
        """Return rows from u ∈ (0, 1)^D, feature by feature (the inverse of Rosenblatt's transform).

        Parameters
        ----------
        value
            the values u of the conditional CDFs, D per row.
        """
        u, context, shape = self.rows_and_contexts(value)
        if not bool(((u >= 0) & (u <= 1)).all()):
            raise AemError("icdf needs probabilities between 0 and 1")
        model = self._double
        context = model.standardise_context(self._doubled(context))
        z = sampling.invert(model, u.double(), context, Quadrature())
        return model.in_units(z).reshape(shape + self.event_shape).to(self._precision(u))

    @staticmethod
    def _doubled(context: Tensor | None) -> Tensor | None:
        return None if context is None else context.double()

    def _precision(self, rows: Tensor) -> torch.dtype:
        """The type of results: that of the rows, but no half precision."""
        return self.model.dtype if rows.dtype.itemsize < LEAST_BYTES else rows.dtype

    @torch.no_grad()
    def sample(
        self,
        sample_shape: Shape = (),
        method: Method = "exact",
        *,
        proposals: int = RESAMPLED,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*S D"]:
        """Draw rows from the model.

        Parameters
        ----------
        sample_shape
            how many rows, a number or a shape; as many for each row of the context.
        method
            "exact" draws by rejection, or by inverting the CDFs where there is nothing to accept
            against; "inverse" always by inversion, in float64; "resample" as the paper does, which
            is exact only in the limit of many proposals; "proposal" from the proposal alone.
        proposals
            how many draws of the proposal each resampled value is chosen from.
        generator
            where random numbers come from; PyTorch's own stream without one.
        """
        shape, how = as_shape(sample_shape) + self.batch_shape, Drawing(method, proposals)
        context, device = self._contexts(shape), self.model.device
        # A literal weight has no bound to accept against.
        if method == "inverse" or (method == "exact" and self.model.config.energy == "literal"):
            u = torch.rand(
                (*shape, *self.event_shape),
                dtype=torch.float64,
                device=device if generator is None else generator.device,
                generator=generator,
            )
            return self.icdf(u.to(device)).to(self.model.dtype)
        model = self.model
        was_training = model.training
        model.eval()
        try:
            with streaming_from(generator):
                z = sampling.draw(model, shape.numel(), model.standardise_context(context), how)
        finally:
            model.train(was_training)
        return model.in_units(z).reshape(shape + self.event_shape)

    def rsample(
        self,
        sample_shape: Shape = (),
        *,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*S D"]:
        """Draw rows that carry gradients to the context and the parameters of the model.

        The gradients follow from the implicit function theorem on the conditional CDFs: a draw moves
        as the rows with the same values of the CDFs do. The draws are those of `sample`; their
        gradients are computed in evaluation mode, by quadrature.

        Parameters
        ----------
        sample_shape
            how many rows, a number or a shape; as many for each row of the context.
        generator
            where random numbers come from; PyTorch's own stream without one.
        """
        if transforming():
            raise AemError("draws have no gradients under torch.func: use torch.autograd.grad")
        rows = self.sample(sample_shape, generator=generator)
        exact, dtype = self._double, rows.dtype
        z = exact.standardise(rows.double().reshape(-1, rows.shape[-1]))
        context = self._contexts(rows.shape[:-1])
        drawn = Draws(exact, Quadrature())(z, context, learning(self.model))
        return exact.in_units(drawn).reshape(rows.shape).to(dtype)

    def moments(self, draws: int = DRAWS) -> Moments:
        """Compute means and variances of the columns, with errors.

        The first column takes quadrature alone; the others are averaged over draws of the columns
        before them, always the same ones.

        Parameters
        ----------
        draws
            how many draws, at least two.
        """
        return moments(self, draws)

    @property
    def mean(self) -> Float[Tensor, "*B D"]:
        """The mean of each column, NaN where there is none; `moments` has its error."""
        return self.moments().mean

    @property
    def variance(self) -> Float[Tensor, "*B D"]:
        """The variance of each column, infinite or NaN where there is none; `moments` has its error."""
        return self.moments().variance

    def entropy(self) -> Float[Tensor, "*B"]:
        """Return the differential entropy, in nats; `entropy_and_error` has its error."""
        return self.entropy_and_error()[0]

    def entropy_and_error(
        self, draws: int = DRAWS
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        """Estimate the differential entropy by draws, always the same ones.

        Parameters
        ----------
        draws
            how many draws, at least two.

        Returns
        -------
        entropy : tensor [*B]
            the entropy, in nats.
        error : tensor [*B]
            its standard error.
        """
        return entropy_and_error(self, draws)

    def _contexts(self, shape: torch.Size) -> Tensor | None:
        """The context of each of so many rows, as [N, Q]."""
        context = self.context
        if context is None:
            return None
        return context.expand(*shape, context.shape[-1]).reshape(-1, context.shape[-1])


def as_rows(values: Tensor | ArrayLike, what: str, model: "AEM") -> Tensor:
    """Return floating-point numbers for a model, or raise an error that says what is wrong.

    Parameters
    ----------
    values
        a tensor, or an array of numbers; whole numbers become floating-point numbers.
    what
        how errors call the values.
    model
        the model that the values are for.
    """
    if not isinstance(values, Tensor):
        try:
            values = torch.from_numpy(np.array(values, np.float64)).to(model.device)
        except (TypeError, ValueError) as error:
            raise AemError(f"the {what} must be numbers: {error}") from error
    if values.dtype is torch.bool or values.dtype.is_complex:
        kind = str(values.dtype).removeprefix("torch.")
        raise AemError(f"the {what} must be real numbers, not of type {kind}")
    if values.device != model.device:
        raise AemError(
            f"the {what} is on '{values.device}' and the model on '{model.device}': move one of them"
        )
    return values if values.dtype.is_floating_point else values.double()


def as_shape(shape: Shape) -> torch.Size:
    """Return the shape of draws, or raise an error that says what is wrong.

    Parameters
    ----------
    shape
        a number of draws, or a shape.
    """
    try:
        sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
        found = [operator.index(size) for size in sizes if not isinstance(size, bool)]
    except TypeError:
        found = []
    if len(found) < len(sizes) or min(found, default=0) < 0:
        raise AemError(f"the shape of draws must be whole numbers from 0 on, not {shape!r}")
    return torch.Size(found)


def _same(kept: Tensor, present: Tensor) -> bool:
    """Whether a weight is what it was."""
    alike = kept.device == present.device and kept.dtype == present.dtype
    alike = alike and kept.requires_grad == present.requires_grad
    return alike and torch.equal(kept, present)


def _recorded(rows: Tensor, context: Tensor | None) -> bool:
    """Whether a gradient in rows or context is wanted."""
    wanted = rows.requires_grad or (context is not None and context.requires_grad)
    return torch.is_grad_enabled() and wanted


register_divergences(AEMDistribution)
