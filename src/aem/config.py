"""Configuration is data: frozen dataclasses, read from TOML and written next to every run."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from aem.base.settings import (
    _require_choice,
    _require_not_negative,
    _require_positive,
    _require_types,
)
from aem.errors import AemError

# Of the networks (`aem.nn.activations`); kernels know ReLU and tanh, others are slower.
Activation = Literal["relu", "tanh", "sigmoid", "softplus", "leaky_relu", "elu"]
RESAMPLED = 100  # proposals a resampled value is chosen from in the paper


@dataclass(frozen=True)
class Family:
    """A kind of proposal.

    Parameters
    ----------
    head
        Where its head is written, as "module:class", or the class itself.
    bounded
        Whether it has no density beyond the bounds of the columns, which the settings must name.
    """

    head: str | type[Any]
    bounded: bool = False


# The names that `ModelConfig.proposal` may have. Whoever adds one here has a proposal of their own:
# `aem.conditionals.proposals.base` says what to write.
PROPOSALS: dict[str, Family] = {
    "mixture": Family("aem.conditionals.proposals.gaussian:GaussianHead"),
    "anchored": Family("aem.conditionals.proposals.anchored:AnchoredHead"),
    "uniform": Family("aem.conditionals.proposals.uniform:UniformHead", bounded=True),
    "laplace": Family("aem.conditionals.proposals.laplace:LaplaceHead"),
    "student_t": Family("aem.conditionals.proposals.student_t:StudentTHead"),
}


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and forms of the networks. `features` and `context_features` follow from the data."""

    features: int = 0
    context_features: int = 0
    # Whether the networks see columns less their means, in deviations, or as they are. Everything the
    # model says of a scalar, `min_scale` included, is in units of what the networks see.
    standardise: bool = True
    # Whether the networks see columns less their regressions on those before, see
    # `aem.model.transforms.whitening`.
    whiten: bool = False
    # autoregressive network
    network: Literal["resmade", "made", "transformer"] = "resmade"
    hidden: int = 256
    blocks: int = 4  # of two layers each, or, of a plain MADE, layers behind the first
    activation: Activation = "relu"  # of ResMADE and MADE
    dropout: float = 0.0
    gamma: int = 64  # width of the context vector γ
    # energy network
    energy: Literal["relative", "literal"] = "relative"
    energy_hidden: int = 128
    energy_blocks: int = 4
    # Whether those are residual blocks of two layers each, or plain layers.
    energy_residual: bool = True
    energy_activation: Activation = "relu"
    energy_dropout: float = 0.0
    # proposal
    proposal: str = "mixture"  # one of PROPOSALS
    components: int = 10
    min_scale: float = 1e-3  # of a component, in units of what the networks see
    # Whether the components start side by side over standardised columns, or where the last layer's
    # random weights put them: on top of each other around zero.
    spread_components: bool = True
    # Of student_t's components, from 1, which makes them Cauchys, to 100, which is nearly Gaussian.
    degrees_of_freedom: float = 3.0
    bounds: tuple[tuple[float, float], ...] = ()  # uniform proposal: (low, high) a column
    # Fourier features of each scalar, 0 for none; their frequencies come from the data
    frequencies: int = 8
    # Whether the autoregressive network reads them as well, or the bare values of the past: with
    # many columns the features of all of them are much to overfit with.
    fourier_past: bool = True
    # (origin, step) a column: values lie on origin + step · k, a step of zero means anywhere
    lattice: tuple[tuple[float, float], ...] = ()

    # What is left of settings that were removed: the only value they may still have.
    REMOVED: ClassVar[dict[str, Any]] = {"energy_input": "value"}

    def __post_init__(self) -> None:
        _require_types(self)
        _require_choice(self, "proposal", PROPOSALS)
        _require_positive(self, "hidden", "gamma", "energy_hidden", "components", "min_scale")
        _require_not_negative(
            self, "features", "context_features", "blocks", "energy_blocks", "frequencies"
        )
        for name in ("dropout", "energy_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise AemError(f"{name} must lie in [0, 1), not {getattr(self, name)}")
        if not 1 <= self.degrees_of_freedom <= 100:
            raise AemError(
                f"degrees_of_freedom must lie between 1 and 100, not {self.degrees_of_freedom}"
            )
        bounded = PROPOSALS[self.proposal].bounded
        if bounded and not self.bounds:
            raise AemError(
                f"proposal '{self.proposal}' needs bounds, a (low, high) pair for each column"
            )
        if self.whiten and not self.standardise:
            raise AemError("whiten makes columns of its own, which cannot be seen as they are")
        if self.whiten and (bounded or self.lattice):
            raise AemError(
                "whiten needs columns without bounds or steps of their own: with a uniform proposal "
                "or a lattice there is nothing to whiten"
            )


@dataclass(frozen=True)
class TrainConfig:
    """How a model is fitted."""

    steps: int = 3000
    batch_size: int = 256
    learning_rate: float = 1e-3
    # Steps in which the learning rate rises to that; a Transformer's first ones are rough.
    rise: int = 0
    warmup: int = 0  # steps that train the proposal alone
    nodes: int = 20  # S
    estimator: Literal["importance", "ranking"] = "ranking"
    stratified: bool = True
    averaging: float = 0.999  # decay of the weight average; 0 for none
    clip: float = 5.0  # largest gradient norm; 0 for none
    weight_decay: float = 0.0
    validate_every: int = 500
    patience: int = 0  # validations without improvement before stopping; 0 for never
    seed: int = 0
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    # A Transformer's blocks through torch.compile: a wait, then faster steps.
    compiled: bool = False
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        _require_types(self)
        _require_positive(self, "steps", "batch_size", "learning_rate", "validate_every")
        _require_not_negative(
            self, "rise", "warmup", "clip", "weight_decay", "patience", "checkpoint_seconds", "seed"
        )
        if self.rise >= self.steps:
            raise AemError(
                f"the learning rate cannot rise for {self.rise} of {self.steps} steps: "
                "train for more, or set rise"
            )
        if self.nodes < 2:
            raise AemError(f"nodes must be at least 2, not {self.nodes}")
        if not 0 <= self.averaging < 1:
            raise AemError(f"averaging must lie in [0, 1), not {self.averaging}")
