"""The AEM: an nn.Module that returns a distribution when it is called."""

import copy
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from aem.base.checks import as_named_columns, check_table
from aem.base.names import unnamed
from aem.conditionals.batch import Conditionals
from aem.conditionals.estimates import level_penalty, log_prob_estimate
from aem.conditionals.proposals.base import head_class
from aem.config import ModelConfig, TrainConfig
from aem.errors import AemError
from aem.model.distribution import AEMDistribution
from aem.model.transforms.affine import Affine
from aem.model.transforms.whitening import Whitening, regressions
from aem.nn.energy import EnergyNetwork
from aem.nn.features import REACH, FourierFeatures, choose_frequencies, default_frequencies
from aem.nn.incremental import incremental
from aem.nn.made import MADE
from aem.nn.resmade import ResMADE
from aem.nn.transformer import CausalTransformer

REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "none": lambda each: each,
}
FLAT = -40.0  # f of a relative energy that takes nothing from the proposal


class AEM(nn.Module):
    """An autoregressive energy machine over D columns, in the units of the data.

    Called, with a context or without, it gives an `AEMDistribution`. Networks see standardised or
    whitened columns z, or columns as they are: `standardisation` is the map. It is part of the
    model, and so are the means and deviations of a context. `for_data` builds a model for training
    rows, `aem.fit` trains it and `aem.save_model` saves it. A loop of one's own minimises `loss`. Log
    densities are exact in evaluation mode; in training mode `log_prob` is a random estimate.

    Parameters
    ----------
    config
        sizes and forms of the networks; `features` must be given.
    standardisation
        the map from the units of the data to z; columns are left as they are without one.
    context_shift
        what is subtracted from each column of a context; zero without any.
    context_scale
        what each column of a context is then divided by; one without any.
    frequencies
        Fourier frequencies of each column, per unit of z; without any those that a few hundred rows
        of a smooth column support.
    columns
        names of the columns; x1, x2 and so on without any.

    Examples
    --------
    >>> import torch
    >>> from aem import AEM, ModelConfig, TrainConfig, fit
    >>> x = torch.randn(300, 1)
    >>> rows = torch.cat((x, x**2), -1).numpy()
    >>> small = ModelConfig(hidden=16, blocks=1, energy_hidden=16, energy_blocks=1)
    >>> model = AEM.for_data(small, rows, columns=["x", "y"])
    >>> state = fit(model, rows[:250], rows[250:], TrainConfig(steps=20, device="cpu"), quiet=True)
    >>> log_p, error = model().log_prob_and_error(torch.tensor([[1.0, 1.0]]))
    >>> bool(error < 1e-3)
    True
    >>> model().sample((1000,)).shape
    torch.Size([1000, 2])
    """

    context_shift: Tensor
    context_scale: Tensor
    origins: Tensor
    steps: Tensor

    def __init__(
        self,
        config: ModelConfig,
        *,
        standardisation: Affine | None = None,
        context_shift: Float[Tensor, " Q"] | None = None,
        context_scale: Float[Tensor, " Q"] | None = None,
        frequencies: Float[Tensor, "D F"] | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        super().__init__()
        d, q = config.features, config.context_features
        if d < 1:
            raise AemError("a model needs at least one feature")
        if columns and len(columns) != d:
            raise AemError(f"there are {len(columns)} column names for {d} features")
        if len(set(columns)) < len(columns):
            raise AemError("two columns have the same name")
        self.config = config
        self.columns = tuple(columns) or tuple(unnamed(d))
        if standardisation is None:
            standardisation = (Whitening if config.whiten else Affine).identity(d)
        self.standardisation = standardisation
        self.register_buffer(
            "context_shift", torch.zeros(q) if context_shift is None else context_shift
        )
        self.register_buffer(
            "context_scale", torch.ones(q) if context_scale is None else context_scale
        )
        if config.lattice and len(config.lattice) != d:
            raise AemError(f"'lattice' has {len(config.lattice)} steps for {d} features")
        lattice = torch.tensor(config.lattice or ((0.0, 0.0),) * d)
        self.register_buffer("origins", lattice[:, 0], persistent=False)
        self.register_buffer("steps", lattice[:, 1], persistent=False)
        if frequencies is None:
            ladder = torch.from_numpy(default_frequencies(config.frequencies))
            frequencies = ladder.float().repeat(d, 1)
        self.embedding = FourierFeatures(frequencies)
        self.head = head_class(config.proposal).from_config(
            config, standardisation.shift, standardisation.scale
        )
        self.arnn = self._make_arnn(frequencies)
        self.energy = EnergyNetwork(
            self.embedding.width,
            config.gamma,
            hidden=config.energy_hidden,
            blocks=config.energy_blocks,
            activation=config.energy_activation,
            dropout=config.energy_dropout,
            residual=config.energy_residual,
        )
        with torch.no_grad():
            bias = self.arnn.biases()
            if config.spread_components:
                bias[:, : self.head.size] += self.head.initial_bias()
            if self.head.silent:
                # A new model equals its initial proposal: zero changes to it, and a constant energy.
                self.arnn.silence(self.head.size)
                bias[:, : self.head.size] = self.head.initial_bias()
                self.energy.final.weight.zero_()

    def _make_arnn(self, frequencies: Float[Tensor, "D F"]) -> MADE | CausalTransformer:
        config = self.config
        embedding = self.embedding if config.fourier_past else FourierFeatures(frequencies[:, :0])
        make: Callable[..., MADE | CausalTransformer]
        if config.network == "transformer":
            sums = torch.eye(config.features) if config.whiten else None
            make = partial(CausalTransformer, sums=sums)
        else:
            masked = ResMADE if config.network == "resmade" else MADE
            make = partial(masked, activation=config.activation)
        return make(
            embedding,
            self.head.size + config.gamma,
            hidden=config.hidden,
            blocks=config.blocks,
            dropout=config.dropout,
            context_features=config.context_features,
        )

    @classmethod
    def for_data(
        cls,
        config: ModelConfig,
        x: ArrayLike,
        context: NDArray[np.floating] | None = None,
        columns: Sequence[str] = (),
    ) -> "AEM":
        """Build an untrained model, with standardisation and frequencies from the training rows.

        Parameters
        ----------
        config
            sizes and forms of the networks; numbers of columns follow from the rows.
        x
            training rows: an array, or a data frame.
        context
            the context of each row, where p(x | context) is to be learnt.
        columns
            names of the columns; those of a data frame without any.
        """
        frame = as_named_columns(x)
        if frame is not None and not columns:
            from aem.base.frames import column_labels

            columns = tuple(column_labels(frame))
        rows = check_table(x, columns=columns, for_fitting=True)
        standardisation = _standardisation(config, rows)
        context_shift = context_scale = None
        q = 0
        if context is not None:
            context = check_table(context, what="context", for_fitting=True)
            if len(context) != len(rows):
                raise AemError(f"the context has {len(context)} rows, the data {len(rows)}")
            q = context.shape[1]
            context_shift = torch.from_numpy(context.mean(0)).float()
            context_scale = torch.from_numpy(context.std(0)).float()
        fields = {**config.__dict__, "features": rows.shape[1], "context_features": q}
        model = cls(
            ModelConfig(**fields),
            standardisation=standardisation,
            context_shift=context_shift,
            context_scale=context_scale,
            columns=columns,
        )
        if isinstance(model.arnn, CausalTransformer) and model.arnn.sums is not None:
            spans = standardisation.spans
            model.arnn.sums.copy_(spans / torch.linalg.vector_norm(spans, dim=1, keepdim=True))
        if config.frequencies:
            z = model.standardise(torch.from_numpy(rows)).numpy()
            ladders = torch.from_numpy(choose_frequencies(z, config.frequencies))
            model.embedding.frequencies.copy_(ladders)
        return model

    @property
    def device(self) -> torch.device:
        """The device that the model's parameters are on."""
        return self.standardisation.shift.device

    @property
    def dtype(self) -> torch.dtype:
        """The type that the model computes in."""
        return self.standardisation.shift.dtype

    def standardise(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Standardise rows, in float64 up to the last rounding.

        Parameters
        ----------
        x
            rows in the units of the data.
        """
        return self.standardisation.forward(x)

    def in_units(self, z: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map standardised rows back to the units of the data.

        Parameters
        ----------
        z
            rows [B, D] as `standardise` returns them.
        """
        return self.standardisation.inverse(z)

    def standardise_context(
        self, context: Float[Tensor, "*B Q"] | None
    ) -> Float[Tensor, "*B Q"] | None:
        """Standardise a context; None stays None.

        Parameters
        ----------
        context
            rows of the context, in their own units; finite.
        """
        if context is None:
            return None
        if context.shape[-1] != self.config.context_features:
            raise AemError(
                f"the context has {context.shape[-1]} columns, "
                f"the model needs {self.config.context_features}"
            )
        if not bool(context.isfinite().all()):
            raise AemError("the context has values that are not finite")
        # The networks cannot distinguish values beyond this range.
        wide = (context.double() - self.context_shift) / self.context_scale
        return wide.clamp(-REACH, REACH).to(self.context_shift)

    def conditionals(
        self, z: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None = None
    ) -> Conditionals:
        """Return all D conditionals of standardised rows, in one pass of the ARNN.

        Parameters
        ----------
        z
            rows [B, D] as `standardise` returns them.
        context
            the context of each row, standardised, where the model has one.
        """
        past = self.snap(z)
        return self.interpret(self.arnn(past, context), past)

    def snap(self, z: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Move values of discrete columns to the middle of their cells, as the networks read them.

        Dequantisation spreads values over cells, and the position in a cell must not carry
        information to later columns.

        Parameters
        ----------
        z
            rows [B, D] as `standardise` returns them.
        """
        if not self.config.lattice:
            return z
        # Models with discrete columns are never whitened, so columns can be mapped one by one.
        shift, scale = self.standardisation.shift, self.standardisation.scale
        x = shift + scale * z
        value = self.origins + self.steps * ((x - self.origins) / self.steps).round()
        return torch.where(self.steps > 0, ((value - shift) / scale).to(z.dtype), z)

    def interpret(
        self,
        outputs: Float[Tensor, "*B O"],
        past: Float[Tensor, "*C N"],
        feature: int | None = None,
    ) -> Conditionals:
        """Turn outputs of the ARNN into conditionals.

        Parameters
        ----------
        outputs
            what the ARNN emits: [..., D, O] for all features, [..., O] for one.
        past
            the standardised rows it read: all columns, or those before the feature.
        feature
            number of the feature; None for all of them.
        """
        phi, gamma = outputs.split((self.head.size, self.config.gamma), -1)
        frequencies = self.embedding.frequencies
        return Conditionals(
            self.head(phi, feature, past),
            self.energy.project(gamma),
            frequencies if feature is None else frequencies[feature],
            self.energy,
            self.config.energy,
            self.config.energy_bound if self.config.energy_bounded else None,
        )

    def sequence(
        self, rows: int, context: Float[Tensor, "B Q"] | None = None
    ) -> "ConditionalSequence":
        """Return the conditionals one after the other, for sampling.

        Parameters
        ----------
        rows
            how many rows are drawn together.
        context
            the context of each row, standardised, where the model has one.
        """
        return ConditionalSequence(self, rows, context)

    def forward(
        self, context: Tensor | ArrayLike | None = None, *, validate_args: bool | None = None
    ) -> AEMDistribution:
        """Return the distribution p(x), or p(x | context) for each row of the context.

        Parameters
        ----------
        context
            one context [Q] or rows of them [*B, Q], in their own units; None for a model without.
        validate_args
            accepted as by distributions of PyTorch; arguments are always checked.

        Returns
        -------
        AEMDistribution
            a `torch.distributions.Distribution` of batch shape `*B` and event shape (D,).
        """
        return AEMDistribution(self, context, validate_args=validate_args)

    def loss(
        self,
        x: Tensor | ArrayLike,
        context: Tensor | ArrayLike | None = None,
        *,
        reduction: str = "mean",
        config: TrainConfig | None = None,
    ) -> Float[Tensor, "*B"]:
        """Return what training minimises: −(log p̂ + log q) of rows, in nats and their own units.

        log p̂, an estimate with random nodes, trains the energies, and log q the proposals, which make
        the nodes. `fit` minimises the same. There are gradients in the parameters and in a context,
        and none in the rows.

        Parameters
        ----------
        x
            rows [*B, D] in the units of the data.
        context
            the context of each row [*B, Q], in its own units, where the model has one.
        reduction
            "mean" or "sum" over the rows, or "none" for one number per row.
        config
            decides nodes, estimator and the penalty on small normalisers; the defaults of
            `TrainConfig` without it.

        Examples
        --------
        >>> import torch
        >>> from aem import AEM, ModelConfig
        >>> model = AEM(ModelConfig(features=2)).train()
        >>> model.loss(torch.zeros(5, 2), reduction="none").shape
        torch.Size([5])
        """
        if reduction not in REDUCTIONS:
            raise AemError(f"unknown reduction '{reduction}'; known: {', '.join(REDUCTIONS)}")
        config = config or TrainConfig()
        rows, own, shape = self(context).rows_and_contexts(x)
        if rows.requires_grad:
            raise AemError(
                "the loss has no gradient in the rows: detach them, or differentiate log_prob"
            )
        z = self.standardise(rows)
        conditionals = self.conditionals(z, self.standardise_context(own))
        log_p, log_q, log_z = log_prob_estimate(
            conditionals,
            z,
            nodes=config.nodes,
            estimator=config.estimator,
            stratified=config.stratified,
        )
        terms = -(log_p + log_q) - 2 * self.standardisation.log_slope
        if config.levelling and conditionals.form == "relative":
            terms = terms + config.levelling * level_penalty(log_z)
        return REDUCTIONS[reduction](terms.sum(-1).reshape(shape))

    @property
    def flat(self) -> bool:
        """Whether the energy is constant, so that the model equals its proposal."""
        return self.config.energy == "relative" and not bool(self.energy.final.weight.any())

    @torch.no_grad()
    def flatten(self) -> None:
        """Make the energy constant, so that the model equals its proposal and scores as fast."""
        if self.config.energy != "relative":
            raise AemError("only a relative energy can be taken away: a literal one is the density")
        self.energy.final.weight.zero_()
        self.energy.final.bias.fill_(FLAT)

    def in_double(self) -> "AEM":
        """Return a float64 copy in evaluation mode, for exact scores."""
        return copy.deepcopy(self).double().eval()


class ConditionalSequence:
    """The conditionals one after the other: `next()` returns p(x_d | x_<d), `push(z_d)` sets x_d.

    Parameters
    ----------
    model
        the model to draw from.
    rows
        B, how many rows go together.
    context
        the context of each row, standardised, or None.
    """

    def __init__(self, model: AEM, rows: int, context: Tensor | None) -> None:
        self.model = model
        self.state = incremental(model.arnn, rows, context)
        self.past = torch.zeros(rows, model.config.features, dtype=model.dtype, device=model.device)

    def next(self) -> Conditionals:
        """Return the conditional of the next column for all rows, of batch shape [B]."""
        known = self.state.known
        return self.model.interpret(self.state.outputs(), self.past[:, :known], known).flatten()

    def push(self, z: Float[Tensor, " B"]) -> None:
        """Set the next column of all rows.

        Parameters
        ----------
        z
            its standardised values.
        """
        known = self.state.known
        self.past[:, known] = z
        self.past = self.model.snap(self.past)
        self.state.push(self.past[:, known])


def _standardisation(config: ModelConfig, x: NDArray[np.float64]) -> Affine:
    """Fit the standardisation to training rows, in single precision.

    Without standardisation it is the identity.
    """
    if not config.standardise:
        if np.abs(x).max() > REACH:
            raise AemError(
                f"values beyond ±{REACH:,.0f} need standardised columns: set 'standardise' to true"
            )
        return Affine.identity(x.shape[1])
    shift = torch.from_numpy(x.mean(0)).float()
    if not config.whiten:
        return Affine(shift, torch.from_numpy(x.std(0)).float())
    slopes, scale = regressions(x)
    whitening = Whitening(shift, torch.from_numpy(scale).float(), torch.from_numpy(slopes).float())
    if not bool(whitening.slopes.isfinite().all()):
        raise AemError("'whiten' needs columns of more similar scale: measure them in other units")
    return whitening
