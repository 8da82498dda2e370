"""The settings of models and of their training, as frozen dataclasses.

Each setting is declared once, with its default, its range and its purpose. Settings are read from
TOML files and written next to every run.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from aem.base.settings import Settings, setting
from aem.errors import AemError

# Activations of the networks (`aem.nn.activations`). ReLU and tanh have kernels; others are slower.
ActivationName = Literal["relu", "tanh", "sigmoid", "softplus", "leaky_relu", "elu"]
RESAMPLED = 100  # proposal draws from which the paper resamples a value


@dataclass(frozen=True)
class Family:
    """A kind of proposal.

    Parameters
    ----------
    head
        The class of its head: "module:class", or the class itself.
    bounded
        Whether its density is zero outside bounds, which the setting `bounds` must give.
    """

    head: str | type[Any]
    bounded: bool = False


# The values of `ModelConfig.proposal`. To add a proposal, register it here;
# `aem.conditionals.proposals.base` says what it has to implement.
PROPOSALS: dict[str, Family] = {
    "mixture": Family("aem.conditionals.proposals.gaussian:GaussianHead"),
    "anchored": Family("aem.conditionals.proposals.anchored:AnchoredHead"),
    "uniform": Family("aem.conditionals.proposals.uniform:UniformHead", bounded=True),
    "laplace": Family("aem.conditionals.proposals.laplace:LaplaceHead"),
    "student_t": Family("aem.conditionals.proposals.student_t:StudentTHead"),
}


@dataclass(frozen=True)
class ModelConfig(Settings):
    """The settings of a model: its networks, its energy and its proposal."""

    features: int = setting(0, "Number of columns; set from the data.", at_least=0)
    context_features: int = setting(
        0, "Number of columns of the context; set from the data.", at_least=0
    )
    standardise: bool = setting(
        True,
        "Whether columns are standardised (mean 0, standard deviation 1) before the networks read "
        "them. `min_scale` is in these units.",
    )
    whiten: bool = setting(
        False, "Whether the linear regression on earlier columns is subtracted from each column."
    )
    network: Literal["resmade", "made", "transformer"] = setting(
        "resmade", "The autoregressive network."
    )
    hidden: int = setting(256, "Width of the autoregressive network.", at_least=1)
    blocks: int = setting(
        4,
        "Number of its residual blocks, of two layers each; for a plain MADE, number of hidden "
        "layers after the first.",
        at_least=0,
    )
    activation: ActivationName = setting("relu", "Activation of a ResMADE or MADE.")
    dropout: float = setting(
        0.0, "Dropout rate of the autoregressive network.", at_least=0, below=1
    )
    gamma: int = setting(
        64, "Width of the context vector γ that it passes to the energy network.", at_least=1
    )
    energy: Literal["relative", "literal"] = setting(
        "relative",
        "Form of the energy: relative to the proposal, so that normalisers are finite by "
        "construction, or literal, as in the paper.",
    )
    energy_bound: float = setting(
        0.0,
        "Upper bound of the unnormalised log density of a literal energy; its value does not change "
        "the density.",
    )
    energy_bounded: bool = setting(
        True, "Whether the unnormalised log density of a literal energy is bounded."
    )
    energy_hidden: int = setting(128, "Width of the energy network.", at_least=1)
    energy_blocks: int = setting(4, "Number of blocks of the energy network.", at_least=0)
    energy_residual: bool = setting(
        True, "Whether its blocks are residual blocks of two layers each, or single plain layers."
    )
    energy_activation: ActivationName = setting("relu", "Activation of the energy network.")
    energy_dropout: float = setting(0.0, "Dropout rate of the energy network.", at_least=0, below=1)
    proposal: str = setting("mixture", "The kind of proposal.", choices=PROPOSALS)
    components: int = setting(10, "Number of mixture components of the proposal.", at_least=1)
    min_scale: float = setting(
        1e-3, "Smallest scale of a mixture component, in standardised units.", above=0
    )
    spread_components: bool = setting(
        True,
        "Whether the components start spread over the range of a standardised column, or at the "
        "output of a randomly initialised layer, where all of them lie close to zero.",
    )
    degrees_of_freedom: float = setting(
        3.0,
        "Degrees of freedom of the Student-t components: 1 gives Cauchy distributions, 100 almost "
        "Gaussians.",
        at_least=1,
        at_most=100,
    )
    bounds: tuple[tuple[float, float], ...] = setting(
        (), "Lowest and highest value of each column, for a uniform proposal."
    )
    frequencies: int = setting(
        8,
        "Number of Fourier frequencies per column, chosen from the data; 0 for no Fourier features.",
        at_least=0,
    )
    fourier_past: bool = setting(
        True,
        "Whether the autoregressive network reads Fourier features too, or the values alone, which "
        "overfits less where there are many columns.",
    )
    lattice: tuple[tuple[float, float], ...] = setting(
        (),
        "Origin and step of each column whose values lie on a grid, origin + step · k; a step of zero "
        "for columns without a grid.",
    )

    # Removed settings, with the only value that files may still have.
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
    """The settings of training."""

    steps: int = setting(3000, "Largest number of training steps.", at_least=1)
    batch_size: int = setting(256, "Rows per step.", at_least=1)
    learning_rate: float = setting(1e-3, "Peak learning rate.", above=0)
    rise: int = setting(
        0,
        "Steps of a linear rise of the learning rate to its peak; useful for a Transformer.",
        at_least=0,
    )
    warmup: int = setting(0, "Number of first steps that train the proposal alone.", at_least=0)
    warmup_linear: bool = setting(
        False,
        "Whether the weight of the energy's objective rises linearly from 0 to 1 during the warm-up "
        "instead.",
    )
    nodes: int = setting(
        20, "Number of proposal samples per conditional (S in the paper).", at_least=2
    )
    estimator: Literal["importance", "ranking"] = setting(
        "ranking",
        "The estimator of log p: importance sampling as in the paper, or ranking of the data point "
        "among the proposal samples, which is bounded and more stable.",
    )
    stratified: bool = setting(
        True, "Whether the samples are stratified (one per quantile interval) or independent."
    )
    averaging: float = setting(
        0.999,
        "Decay of the exponential moving average of the weights; 0 for none.",
        at_least=0,
        below=1,
    )
    levelling: float = setting(
        0.01,
        "Weight of a penalty on very small normalisers of relative energies, which would make exact "
        "sampling slow; 0 for none.",
        at_least=0,
        earlier=0.0,
    )
    clip: float = setting(
        5.0, "Largest norm of the gradient, by clipping; 0 for no clipping.", at_least=0
    )
    weight_decay: float = setting(0.0, "Decoupled weight decay.", at_least=0)
    validate_every: int = setting(500, "Number of steps between two validations.", at_least=1)
    patience: int = setting(
        0,
        "Early stopping: number of validations without improvement after which training stops; 0 for "
        "never.",
        at_least=0,
    )
    seed: int = setting(0, "Seed of all random numbers.", at_least=0)
    device: str = setting("auto", 'Device: "auto", "cpu" or "cuda".')
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        "auto",
        "Precision of matrix products; auto is bfloat16 on GPUs that support it, else float32.",
    )
    compiled: bool = setting(
        False,
        "Whether torch.compile compiles the blocks of a Transformer: a slower start, faster steps.",
    )
    checkpoint_seconds: float = setting(
        30.0, "Seconds between two checkpoints, if a folder is given.", at_least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rise >= self.steps:
            raise AemError(
                f"the learning rate cannot rise for {self.rise} of {self.steps} steps: "
                "increase 'steps' or reduce 'rise'"
            )
