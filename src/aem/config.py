"""Configuration is data: frozen dataclasses, read from TOML and written next to every run.

Each setting is declared once, with its range and what it is for.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from aem.base.settings import Settings, setting
from aem.errors import AemError

# Of the networks (`aem.nn.activations`); kernels know ReLU and tanh, others are slower.
ActivationName = Literal["relu", "tanh", "sigmoid", "softplus", "leaky_relu", "elu"]
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
class ModelConfig(Settings):
    """Shapes and forms of the networks."""

    features: int = setting(0, "Number of columns; follows from the data.", at_least=0)
    context_features: int = setting(
        0, "Number of columns of the context; follows from the data.", at_least=0
    )
    standardise: bool = setting(
        True,
        "Whether the networks see columns less their means, in deviations, or as they are. "
        "Everything the model says of a value, `min_scale` included, is in units of what they see.",
    )
    whiten: bool = setting(
        False, "Whether the networks see columns less their regressions on the columns before."
    )
    network: Literal["resmade", "made", "transformer"] = setting(
        "resmade", "The autoregressive network."
    )
    hidden: int = setting(256, "Width of the autoregressive network.", at_least=1)
    blocks: int = setting(
        4,
        "Its residual blocks, of two layers each; of a plain MADE, its layers behind the first.",
        at_least=0,
    )
    activation: ActivationName = setting("relu", "The activation of a ResMADE or MADE.")
    dropout: float = setting(
        0.0, "Share of the units that training leaves out of it.", at_least=0, below=1
    )
    gamma: int = setting(64, "Width of the context vector γ that it gives the energy.", at_least=1)
    energy: Literal["relative", "literal"] = setting(
        "relative",
        "Whether the energy is measured against the proposal and capped by it, so that normalisers "
        "are finite, or stands by itself as in the paper.",
    )
    energy_bound: float = setting(
        0.0,
        "The most that the logarithm of a literal energy's p̃ may be. Where it lies makes no "
        "difference to the density.",
    )
    energy_bounded: bool = setting(True, "Whether a literal energy has such a bound.")
    energy_hidden: int = setting(128, "Width of the energy network.", at_least=1)
    energy_blocks: int = setting(4, "Blocks of the energy network.", at_least=0)
    energy_residual: bool = setting(
        True, "Whether those are residual blocks of two layers each, or plain layers."
    )
    energy_activation: ActivationName = setting("relu", "The activation of the energy network.")
    energy_dropout: float = setting(
        0.0, "Share of the units that training leaves out of it.", at_least=0, below=1
    )
    proposal: str = setting("mixture", "The kind of proposal.", choices=PROPOSALS)
    components: int = setting(10, "Components of a mixture.", at_least=1)
    min_scale: float = setting(
        1e-3, "The smallest scale of a component, in units of what the networks see.", above=0
    )
    spread_components: bool = setting(
        True,
        "Whether components start side by side over standardised columns, or where the random "
        "weights of the last layer put them: on top of each other around zero.",
    )
    degrees_of_freedom: float = setting(
        3.0,
        "Of the components of student_t: 1 makes them Cauchy distributions, 100 nearly Gaussians.",
        at_least=1,
        at_most=100,
    )
    bounds: tuple[tuple[float, float], ...] = setting(
        (), "The lowest and the highest value of each column, for a uniform proposal."
    )
    frequencies: int = setting(
        8,
        "Fourier features of each value, 0 for none; their frequencies come from the data.",
        at_least=0,
    )
    fourier_past: bool = setting(
        True,
        "Whether the autoregressive network reads the Fourier features as well, or the bare values "
        "of the past: with many columns it overfits to the features of all of them.",
    )
    lattice: tuple[tuple[float, float], ...] = setting(
        (),
        "Origin and step of each column: values lie on origin + step · k; a step of zero means "
        "anywhere.",
    )

    # What is left of settings that were removed: the only value they may still have.
    REMOVED: ClassVar[dict[str, Any]] = {"energy_input": "value"}

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded = PROPOSALS[self.proposal].bounded
        if bounded and not self.bounds:
            raise AemError(
                f"the proposal '{self.proposal}' needs 'bounds', a (low, high) pair for each column"
            )
        if self.energy == "relative" and (self.energy_bound or not self.energy_bounded):
            raise AemError(
                "a relative energy is bounded by its proposal: 'energy_bound' and 'energy_bounded' are "
                "settings of the energy 'literal'"
            )
        if self.whiten and not self.standardise:
            raise AemError("'whiten' standardises columns: it needs 'standardise' to be true")
        if self.whiten and (bounded or self.lattice):
            raise AemError(
                "'whiten' cannot be combined with a uniform proposal or a lattice, whose bounds and "
                "steps are those of single columns"
            )


@dataclass(frozen=True)
class TrainConfig(Settings):
    """How a model is fitted."""

    steps: int = setting(3000, "Training steps, at most.", at_least=1)
    batch_size: int = setting(256, "Rows per step.", at_least=1)
    learning_rate: float = setting(1e-3, "The highest learning rate.", above=0)
    rise: int = setting(
        0,
        "Steps in which the learning rate rises to that; a Transformer's first ones are rough.",
        at_least=0,
    )
    warmup: int = setting(0, "Steps that train the proposal alone.", at_least=0)
    warmup_linear: bool = setting(
        False,
        "Whether in these steps the energy's share of the objective rises in proportion instead, "
        "to one.",
    )
    nodes: int = setting(20, "Proposal draws per conditional, the S of the paper.", at_least=2)
    estimator: Literal["importance", "ranking"] = setting(
        "ranking",
        "The objective: the paper's importance sampling, or ranking with the data point among the "
        "nodes, which cannot run away.",
    )
    stratified: bool = setting(
        True, "Whether nodes are drawn one from each of S strata, or independently."
    )
    averaging: float = setting(
        0.999, "Decay of the average of the weights; 0 for none.", at_least=0, below=1
    )
    levelling: float = setting(
        0.01,
        "Weight of a penalty on normalisers of relative energies far below one, which change no "
        "density but make draws slow; 0 for none.",
        at_least=0,
        earlier=0.0,
    )
    clip: float = setting(5.0, "The largest norm of a gradient; 0 for none.", at_least=0)
    weight_decay: float = setting(0.0, "Decoupled weight decay.", at_least=0)
    validate_every: int = setting(500, "Steps between two validations.", at_least=1)
    patience: int = setting(
        0,
        "Validations without improvement after which training stops; 0 for never.",
        at_least=0,
    )
    seed: int = setting(0, "Seed of everything drawn at random.", at_least=0)
    device: str = setting("auto", 'Where to train: "auto", "cpu" or "cuda".')
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", "The type of products: bfloat16 on a GPU that has it, unless said otherwise."
    )
    compiled: bool = setting(
        False,
        "Whether a Transformer's blocks go through torch.compile: a wait, then faster steps.",
    )
    checkpoint_seconds: float = setting(
        30.0, "Seconds between two checkpoints of a run with a folder.", at_least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rise >= self.steps:
            raise AemError(
                f"the learning rate cannot rise for {self.rise} of {self.steps} steps: "
                "increase 'steps' or reduce 'rise'"
            )
