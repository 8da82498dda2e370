"""Gradients of exact log densities, and of draws.

A log density is computed without a graph, exactly as where no gradient is wanted; the panels of its
normalisers are kept. The backward pass runs the autoregressive network again with a graph, puts the
derivatives of the normalisers (`aem.conditionals.gradients`) where its outputs are, and goes on to
the rows, their context and the parameters.

The functions follow PyTorch's conventions for `torch.func`, so that `grad`, `vmap` and `jacrev` work.
There are no second derivatives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from aem.base.threads import spread
from aem.conditionals.gradients import Rule, parts
from aem.conditionals.normalizer import Normalizer, Quadrature, normalizer, refuse_divergent
from aem.errors import AemError
from aem.model.scoring import (
    Scores,
    block_by_block,
    blocks,
    refuse_not_finite,
    score_conditionals,
    solve,
)
from aem.nn.kernels import applied

if TYPE_CHECKING:
    from aem.model.aem import AEM


def transforming() -> bool:
    """Return whether a transform of `torch.func`, such as `vmap`, is under way."""
    return bool(torch._C._are_functorch_transforms_active())


def learning(model: "AEM") -> list[Tensor]:
    """Return the parameters of a model that are to have gradients.

    Parameters
    ----------
    model
        the model, or its copy in float64, whose parameters are in the same order.
    """
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@dataclass(frozen=True)
class Solved:
    """A block of rows whose normalisers are known.

    Parameters
    ----------
    rows
        which rows these are.
    solved
        the normalisers with their panels, and the number of each conditional among them; None where
        the energy is flat.
    """

    rows: slice
    solved: tuple[Normalizer, Int[Tensor, "B D"]] | None


@dataclass
class LogDensity:
    """The log density of rows by conditional, with what its gradient needs.

    Parameters
    ----------
    exact
        returns the model in float64; it is called where no transform of `torch.func` is under way.
    settings
        tolerance per row, nodes and memory of the quadrature.
    """

    exact: Callable[[], "AEM"]
    settings: Quadrature
    blocks: list[Solved] = field(default_factory=list, init=False)

    def __call__(
        self, rows: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]]:
        """Return log densities and errors by conditional, with gradients in rows and context.

        Parameters
        ----------
        rows
            rows in the units of the data.
        context
            the context of each row, in its own units, or None.

        Returns
        -------
        log_prob : tensor [B, D]
            log p(x_d | x_<d).
        error : tensor [B, D]
            the estimated error of each.
        """
        log_prob, error = applied(_LogDensities, self, rows, context)
        return log_prob, error

    @cached_property
    def model(self) -> "AEM":
        """The model, in float64."""
        return self.exact()

    @torch.no_grad()
    def compute(self, rows: Tensor, context: Tensor | None) -> Scores:
        """Score rows as without a gradient, and keep the panels of their normalisers.

        Parameters
        ----------
        rows
            rows in the units of the data.
        context
            the context of each row, in its own units, or None.
        """
        model, settings = self.model, self.settings

        def some(block: slice) -> tuple[Scores, Solved]:
            z = model.standardise(rows[block].double())
            own = model.standardise_context(None if context is None else context[block].double())
            flat = model.conditionals(z, own).flatten()
            solved = None
            if not model.flat:
                solved = solve(flat, z, own, settings, keep_panels=True, interpolating=False)
            scores = score_conditionals(model, flat, z, own, settings, block.start, solved)
            return scores, Solved(slice(block.start, block.start + len(z)), solved)

        found = list(block_by_block(some, model, rows, context, settings))
        self.blocks = [block for _, block in found]
        return Scores.concatenate([scores for scores, _ in found])

    def gradients(
        self,
        grad: Float[Tensor, "B D"],
        rows: Float[Tensor, "B D"],
        context: Float[Tensor, "B Q"] | None,
        parameters: Sequence[Tensor] = (),
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """Return the gradients of Σ grad · log p in rows, context and parameters.

        Parameters
        ----------
        grad
            what each log density is multiplied by.
        rows
            the rows that were scored.
        context
            their context.
        parameters
            parameters of the model.

        Returns
        -------
        of_rows : tensor [B, D]
            the gradient in the rows.
        of_context : tensor [B, Q] or None
            the gradient in the context.
        of_parameters : list of tensor
            the gradient in each parameter.
        """

        def some(block: Solved) -> tuple[Tensor, Tensor | None, list[Tensor]]:
            here = block.rows
            own = None if context is None else context[here]
            return self._gradients(block, grad[here].double(), rows[here], own, parameters)

        found = list(spread(some, self.blocks, device=rows.device.type))
        of_rows = torch.cat([part for part, _, _ in found]).to(rows)
        of_context = None
        if context is not None:
            of_context = torch.cat([part for _, part, _ in found if part is not None]).to(context)
        return of_rows, of_context, _summed([own for _, _, own in found])

    def _gradients(
        self,
        block: Solved,
        grad: Tensor,
        rows: Tensor,
        context: Tensor | None,
        parameters: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        model = self.model
        with torch.enable_grad():
            rows = rows.detach().double().requires_grad_()
            if context is not None:
                context = context.detach().double().requires_grad_()
            z = model.standardise(rows)
            flat = model.conditionals(z, model.standardise_context(context)).flatten()
            node = z.reshape(-1, 1)
            value = flat.proposal.log_prob(node) if model.flat else flat.log_unnormalized(node)
        outputs, by = [value], [grad.reshape(-1, 1)]
        of_energy = [torch.zeros_like(parameter) for parameter in parameters]
        if block.solved is not None:
            computed, owner = block.solved
            weight, problem = -grad.reshape(-1), owner.reshape(-1)
            rule = Rule.of_log_z(computed)
            each = parts(flat)
            slopes = rule.derivative(self.settings, [part.requires_grad for part in each])
            for part, slope in zip(each, slopes, strict=True):
                if slope is not None:
                    outputs.append(part)
                    by.append(_times(weight, slope[problem]))
            total = torch.zeros_like(computed.log_z).index_add_(0, problem, weight)
            of_energy = _of_energy(model, rule, total, self.settings, parameters)
        inputs = [rows, *([] if context is None else [context]), *parameters]
        of_rows, *rest = torch.autograd.grad(outputs, inputs, by, materialize_grads=True)
        of_context = None if context is None else rest.pop(0)
        return of_rows, of_context, [a + b for a, b in zip(rest, of_energy, strict=True)]


def _times(weight: Tensor, slope: Tensor) -> Tensor:
    """Numbers per conditional times something of any shape per conditional."""
    return weight.reshape(-1, *(1,) * (slope.ndim - 1)) * slope


def _summed(found: list[list[Tensor]]) -> list[Tensor]:
    """The sums of what several blocks of rows say of each parameter."""
    return [torch.stack(each).sum(0) for each in zip(*found, strict=True)]


def _of_energy(
    model: "AEM",
    rule: Rule,
    weight: Float[Tensor, " N"],
    settings: Quadrature,
    parameters: Sequence[Tensor],
) -> list[Tensor]:
    """What a rule says of parameters of the model: zero of those that are not the energy's."""
    places = {id(parameter): place for place, parameter in enumerate(parameters)}
    gradients = [torch.zeros_like(parameter) for parameter in parameters]
    # The rule may have a copy of the energy network, in float32.
    copied = rule.coordinates.conditionals.energy.parameters()
    pairs = zip(model.energy.parameters(), copied, strict=True)
    own = [(places[id(p)], copy) for p, copy in pairs if id(p) in places]
    if own:
        found = rule.derivative_of_energy(settings, weight, [copy for _, copy in own])
        for (place, _), gradient in zip(own, found, strict=True):
            gradients[place] += gradient
    return gradients


def _fold(info: Any, dim: int | None, t: Tensor) -> Tensor:
    """Make rows of a batch that `vmap` maps over."""
    first = t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
    return first.flatten(0, 1)


def _unfold(info: Any, t: Tensor) -> Tensor:
    return t.unflatten(0, (info.batch_size, -1)) if len(t) else t.expand(info.batch_size, *t.shape)


class _LogDensities(torch.autograd.Function):
    """(log p(x_d | x_<d), error) of rows."""

    @staticmethod
    def forward(work: LogDensity, rows: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        refuse_not_finite(rows, work.model.columns)
        scores = work.compute(rows, context)
        scores.warn(work.settings.tolerance)
        return scores.log_prob, scores.error

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.work, rows, context = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(rows, context)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        rows, context = ctx.saved_tensors
        of_rows, of_context = applied(_RowGradients, ctx.work, grad, rows, context)
        return None, of_rows, None if context is None else of_context

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise AemError("log densities have no forward-mode derivatives: use torch.func.grad")

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, work: LogDensity, rows: Tensor, context: Tensor | None
    ) -> Any:
        rows = _fold(info, in_dims[1], rows)
        if context is not None:
            context = _fold(info, in_dims[2], context)
        found = applied(_LogDensities, work, rows, context)
        return tuple(_unfold(info, part) for part in found), (0, 0)


class _RowGradients(torch.autograd.Function):
    """The gradient of a sum of log densities in rows and context."""

    @staticmethod
    def forward(
        work: LogDensity, grad: Tensor, rows: Tensor, context: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        of_rows, of_context, _ = work.gradients(grad, rows, context)
        return of_rows, rows.new_zeros(0) if of_context is None else of_context

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> NoReturn:
        raise AemError("log densities can be differentiated only once")

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Any,
        work: LogDensity,
        grad: Tensor,
        rows: Tensor,
        context: Tensor | None,
    ) -> Any:
        _, of_grad, of_rows, of_context = in_dims
        if of_rows is None and of_context is None:  # several gradients of the same log densities
            each = grad.movedim(of_grad, 0).unbind()
            found = [applied(_RowGradients, work, one, rows, context) for one in each]
            return tuple(torch.stack(part) for part in zip(*found, strict=True)), (0, 0)
        grad, rows = _fold(info, of_grad, grad), _fold(info, of_rows, rows)
        if context is not None:
            context = _fold(info, of_context, context)
        found = applied(_RowGradients, work, grad, rows, context)
        return tuple(_unfold(info, part) for part in found), (0, 0)


class ParameterGradients(torch.autograd.Function):
    """Zeros whose gradient in the parameters is that of log densities: to be added to these.

    A function of its own, so that who asks for the gradient in the rows alone does not wait for it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        work: LogDensity,
        rows: Tensor,
        context: Tensor | None,
        like: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        """Return zeros.

        Parameters
        ----------
        ctx
            what the backward pass needs.
        work
            the log densities.
        rows
            the rows that were scored.
        context
            their context.
        like
            the log densities, by conditional.
        parameters
            those of the model that learn, in its own precision.
        """
        ctx.work, ctx.types = work, [parameter.dtype for parameter in parameters]
        ctx.save_for_backward(rows, context)
        return torch.zeros_like(like)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients in the parameters.

        Parameters
        ----------
        ctx
            what the forward pass has left.
        grad
            what each log density is multiplied by.
        """
        rows, context = ctx.saved_tensors
        _, _, found = ctx.work.gradients(grad, rows, context, learning(ctx.work.model))
        own = (g.to(t) for g, t in zip(found, ctx.types, strict=True))
        return None, None, None, None, *own


@dataclass(frozen=True)
class Draws:
    """Draws as functions of the context and the parameters, by the implicit function theorem.

    A draw has u_d = F(z_d | z_<d) for uniforms u that depend on nothing, so that
    dz_d = −dF(z_d | z_<d) / p(z_d | z_<d), where dF is what context, parameters and the columns
    before change of the CDF at a fixed point.

    Parameters
    ----------
    model
        the model, in float64.
    settings
        tolerance per row, nodes and memory of the quadrature.
    """

    model: "AEM"
    settings: Quadrature

    def __call__(
        self, z: Float[Tensor, "B D"], context: Tensor | None, parameters: Sequence[Tensor]
    ) -> Float[Tensor, "B D"]:
        """Return draws as they are, with gradients.

        Parameters
        ----------
        z
            standardised draws from the model, float64.
        context
            the context of each draw, in its own units, or None.
        parameters
            those of the model that learn, in its own precision.
        """
        drawn: Tensor = applied(_Draws, self, z, context, *parameters)
        return drawn

    def gradients(
        self,
        grad: Float[Tensor, "B D"],
        z: Float[Tensor, "B D"],
        context: Float[Tensor, "B Q"] | None,
        parameters: Sequence[Tensor],
    ) -> tuple[Tensor | None, list[Tensor]]:
        """Return the gradients of Σ grad · z in context and parameters.

        Parameters
        ----------
        grad
            what each drawn value is multiplied by.
        z
            the draws.
        context
            their context.
        parameters
            parameters of the model.

        Returns
        -------
        of_context : tensor [B, Q] or None
            the gradient in the context.
        of_parameters : list of tensor
            the gradient in each parameter.
        """

        def some(block: slice) -> tuple[Tensor | None, list[Tensor]]:
            own = None if context is None else context[block]
            return self._gradients(grad[block], z[block], own, parameters, block.start)

        memory = self.settings.bytes_on(z.device)
        found = list(spread(some, blocks(self.model, len(z), memory), device=z.device.type))
        of_context = None
        if context is not None:
            of_context = torch.cat([part for part, _ in found if part is not None]).to(context)
        return of_context, _summed([own for _, own in found])

    def _gradients(
        self,
        grad: Tensor,
        z: Tensor,
        context: Tensor | None,
        parameters: Sequence[Tensor],
        first_row: int,
    ) -> tuple[Tensor | None, list[Tensor]]:
        model, settings, features = self.model, self.settings, z.shape[1]
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            if context is not None:
                context = context.detach().double().requires_grad_()
            flat = model.conditionals(z, model.standardise_context(context)).flatten()
        computed = normalizer(
            flat,
            settings,
            tolerance=settings.tolerance / features,
            keep_panels=True,
            interpolating=False,
        )
        refuse_divergent(computed.log_z.view(z.shape), model.columns, first_row)
        value = z.detach().reshape(-1)
        rule = Rule.of_cdf(computed, value, settings)
        with torch.no_grad():
            log_p = flat.log_unnormalized(value[:, None])[:, 0] - computed.log_z
        each = parts(flat)
        slopes = rule.derivative(settings, [part.requires_grad for part in each])
        outputs = [part for part, slope in zip(each, slopes, strict=True) if slope is not None]
        slopes_of_outputs = [slope for slope in slopes if slope is not None]
        # From the last column to the first: what a value is worth to those after it is known then.
        worth, weight = grad.double().clone(), torch.zeros_like(grad, dtype=torch.float64)
        for d in reversed(range(features)):
            own = torch.zeros_like(weight)
            own[:, d] = -worth[:, d] / log_p.view(z.shape)[:, d].exp()
            weight += own
            if d and outputs:
                by = [_times(own.reshape(-1), slope) for slope in slopes_of_outputs]
                (found,) = torch.autograd.grad(
                    outputs, z, by, retain_graph=True, materialize_grads=True
                )
                worth = worth + found
        inputs = [*([] if context is None else [context]), *parameters]
        by = [_times(weight.reshape(-1), slope) for slope in slopes_of_outputs]
        rest = [torch.zeros_like(each) for each in inputs]
        if outputs and inputs:
            rest = list(torch.autograd.grad(outputs, inputs, by, materialize_grads=True))
        of_context = None if context is None else rest.pop(0)
        of_energy = _of_energy(model, rule, weight.reshape(-1), settings, parameters)
        return of_context, [a + b for a, b in zip(rest, of_energy, strict=True)]


class _Draws(torch.autograd.Function):
    """Draws as they are; their gradients are those of `Draws`."""

    @staticmethod
    def forward(
        ctx: Any, work: Draws, z: Tensor, context: Tensor | None, *parameters: Tensor
    ) -> Tensor:
        ctx.work, ctx.types = work, [parameter.dtype for parameter in parameters]
        ctx.save_for_backward(z, context)
        return z.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, context = ctx.saved_tensors
        parameters = learning(ctx.work.model) if ctx.types else []
        of_context, found = ctx.work.gradients(grad, z, context, parameters)
        return None, None, of_context, *(g.to(t) for g, t in zip(found, ctx.types, strict=True))
