"""AEM: an nn.Module that, called with a context or none, gives a distribution."""

import copy
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from aem.base.checks import check_table
from aem.conditionals.batch import Conditionals
from aem.conditionals.proposals.base import head_class
from aem.config import ModelConfig
from aem.errors import AemError
from aem.model.distribution import AEMDistribution
from aem.model.transforms.whitening import regressions
from aem.nn.energy import EnergyNetwork
from aem.nn.features import REACH, FourierFeatures, choose_frequencies
from aem.nn.incremental import incremental
from aem.nn.made import MADE
from aem.nn.resmade import ResMADE
from aem.nn.rowwise import linear
from aem.nn.transformer import CausalTransformer


class AEM(nn.Module):
    """An autoregressive energy machine over D columns, in the units of the data.

    Networks see standardised values z = (x − centre) / scale. The centre of a column is its shift
    or, in a whitened model, its regression on the columns before; where columns are seen as they are,
    it is zero and the scale one. All of it is part of the model.
    """

    shift: Tensor
    scale: Tensor
    slopes: Tensor | None
    context_shift: Tensor
    context_scale: Tensor
    origins: Tensor
    steps: Tensor

    def __init__(
        self,
        config: ModelConfig,
        *,
        shift: Float[Tensor, " D"] | None = None,
        scale: Float[Tensor, " D"] | None = None,
        slopes: Float[Tensor, "D D"] | None = None,
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
            raise AemError(f"{len(columns)} column names for {d} features")
        self.config = config
        self.columns = tuple(columns) or tuple(f"x{i + 1}" for i in range(d))
        self.register_buffer("shift", torch.zeros(d) if shift is None else shift)
        self.register_buffer("scale", torch.ones(d) if scale is None else scale)
        if slopes is None and config.whiten:
            slopes = torch.zeros(d, d)
        self.register_buffer("slopes", slopes)
        self.register_buffer(
            "context_shift", torch.zeros(q) if context_shift is None else context_shift
        )
        self.register_buffer(
            "context_scale", torch.ones(q) if context_scale is None else context_scale
        )
        if config.lattice and len(config.lattice) != d:
            raise AemError(f"{len(config.lattice)} steps for {d} features")
        lattice = torch.tensor(config.lattice or ((0.0, 0.0),) * d)
        self.register_buffer("origins", lattice[:, 0], persistent=False)
        self.register_buffer("steps", lattice[:, 1], persistent=False)
        if frequencies is None:
            frequencies = torch.zeros(d, config.frequencies)
        self.embedding = FourierFeatures(frequencies)
        self.head = head_class(config.proposal).from_config(config, self.shift, self.scale)
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
                # Exactly the initial proposal at first: nothing changed, and a flat energy.
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
        x: NDArray[np.floating],
        context: NDArray[np.floating] | None = None,
        columns: Sequence[str] = (),
    ) -> "AEM":
        """A fresh model whose standardisation and frequencies fit the training rows."""
        x = check_table(x, columns=columns, for_fitting=True)
        (shift, scale), slopes = _standardisation(config, x), None
        if config.whiten:
            coefficients, scale = regressions(x)
            slopes = torch.from_numpy(coefficients).float()
            if not bool(slopes.isfinite().all()):
                raise AemError(
                    "whiten needs columns of more similar scale: measure them in other units"
                )
        context_shift = context_scale = None
        q = 0
        if context is not None:
            context = check_table(context, what="context", for_fitting=True)
            if len(context) != len(x):
                raise AemError(f"the context has {len(context)} rows, the data {len(x)}")
            q = context.shape[1]
            context_shift = torch.from_numpy(context.mean(0)).float()
            context_scale = torch.from_numpy(context.std(0)).float()
        fields = {**config.__dict__, "features": x.shape[1], "context_features": q}
        model = cls(
            ModelConfig(**fields),
            shift=torch.from_numpy(shift).float(),
            scale=torch.from_numpy(scale).float(),
            slopes=slopes,
            context_shift=context_shift,
            context_scale=context_scale,
            columns=columns,
        )
        if isinstance(model.arnn, CausalTransformer) and model.arnn.sums is not None:
            spans = model._spans
            model.arnn.sums.copy_(spans / torch.linalg.vector_norm(spans, dim=1, keepdim=True))
        if config.frequencies:
            z = model.standardise(torch.from_numpy(x)).numpy()
            ladders = torch.from_numpy(choose_frequencies(z, config.frequencies))
            model.embedding.frequencies.copy_(ladders)
        return model

    def standardise(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """From the units of the data to what the networks see; float64 until the last rounding."""
        x = x.double()
        return ((x - self.centre(x)) / self.scale.to(x)).to(self.shift)

    def centre(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Where each column stands for rows with such columns before it, in the units of the data."""
        shift = self.shift.to(x)
        if self.slopes is None:
            return shift.expand_as(x)
        return shift + linear(x - shift, self.slopes.to(x))

    def in_units(self, z: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Back from what the networks see to the units of the data."""
        if self.slopes is None:
            return self.shift + self.scale * z
        return self.shift + linear(z.double(), self._spans).to(z)

    @property
    def deviations(self) -> Float[Tensor, " D"]:
        """Of the columns themselves."""
        lengths: Tensor = torch.linalg.vector_norm(self._spans, dim=1)
        return lengths.to(self.scale)

    @property
    def _spans(self) -> Float[Tensor, "D D"]:
        """What a unit of each column that the networks see adds to each column of the data."""
        each = torch.diag(self.scale.double())
        if self.slopes is None:
            return each
        factor = torch.eye(len(each), device=each.device) - self.slopes.double()
        solved: Tensor = torch.linalg.solve_triangular(
            factor, each, upper=False, unitriangular=True
        )
        return solved

    def standardise_context(
        self, context: Float[Tensor, "*B Q"] | None
    ) -> Float[Tensor, "*B Q"] | None:
        """The same for a context."""
        if context is None:
            return None
        if context.shape[-1] != self.config.context_features:
            raise AemError(
                f"the context has {context.shape[-1]} columns, "
                f"the model was built for {self.config.context_features}"
            )
        if not bool(context.isfinite().all()):
            raise AemError("the context has values that are not finite")
        # Beyond what the networks can tell apart it makes no difference.
        wide = (context.double() - self.context_shift) / self.context_scale
        return wide.clamp(-REACH, REACH).to(self.context_shift)

    def conditionals(
        self, z: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None = None
    ) -> Conditionals:
        """All D conditionals of standardised rows, in one pass of the ARNN."""
        past = self.snap(z)
        return self.interpret(self.arnn(past, context), past)

    def snap(self, z: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Standardised rows with discrete columns at the value they stand for, as they are read.

        A discrete column's density is spread over cells one step wide; where in its cell a value
        lies must tell nothing about the columns after it.
        """
        if not self.config.lattice:
            return z
        x = self.shift + self.scale * z
        value = self.origins + self.steps * ((x - self.origins) / self.steps).round()
        return torch.where(self.steps > 0, ((value - self.shift) / self.scale).to(z.dtype), z)

    def interpret(
        self,
        outputs: Float[Tensor, "*B O"],
        past: Float[Tensor, "*C N"],
        feature: int | None = None,
    ) -> Conditionals:
        """ARNN outputs [..., D, O], or those of one feature [..., O], as conditionals."""
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
        """The conditionals one after the other, for sampling."""
        return ConditionalSequence(self, rows, context)

    def forward(self, context: Float[Tensor, "*B Q"] | None = None) -> AEMDistribution:
        """The distribution p(x), or p(x | context) for each row of the context."""
        return AEMDistribution(self, context)

    @property
    def flat(self) -> bool:
        """Whether the energy is the same everywhere, so that the proposal is all there is."""
        return self.config.energy == "relative" and not bool(self.energy.final.weight.any())

    def in_double(self) -> "AEM":
        """A float64 copy in evaluation mode, for exact scores."""
        return copy.deepcopy(self).double().eval()


def _standardisation(
    config: ModelConfig, x: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What is taken off each column, and what it is divided by: nothing, where it is seen as it is."""
    if config.standardise:
        return x.mean(0), x.std(0)
    if np.abs(x).max() > REACH:
        raise AemError(f"columns beyond ±{REACH:,.0f} cannot be seen as they are: standardise them")
    return np.zeros(x.shape[1]), np.ones(x.shape[1])


class ConditionalSequence:
    """Feature by feature: `next()` gives p(x_d | x_<d), `push(z_d)` fixes x_d."""

    def __init__(self, model: AEM, rows: int, context: Tensor | None) -> None:
        self.model = model
        self.state = incremental(model.arnn, rows, context)
        self.past = model.shift.new_zeros(rows, model.config.features)

    def next(self) -> Conditionals:
        """The conditional of the next feature for every row: batch shape [B]."""
        known = self.state.known
        return self.model.interpret(self.state.outputs(), self.past[:, :known], known).flatten()

    def push(self, z: Float[Tensor, " B"]) -> None:
        """Fix the next feature."""
        known = self.state.known
        self.past[:, known] = z
        self.past = self.model.snap(self.past)
        self.state.push(self.past[:, known])
