"""Settings of the latent-variable experiment: one dataclass per section of its TOML file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from aem.base.settings import Settings, from_mapping, setting
from aem.config import ModelConfig, TrainConfig
from aem.errors import AemError
from aem.paper.presets import layered_settings

IMAGES = 10_000  # of the test set
PRECISIONS = "The type of products: bfloat16 on a GPU that has it, unless said otherwise."


@dataclass(frozen=True)
class NetworkConfig(Settings):
    """Encoder and decoder, mirror images of each other."""

    latents: int = setting(32, "Latent variables.", at_least=1)
    channels: int = setting(
        16, "Channels at full resolution; doubled three times on the way down.", at_least=1
    )
    blocks: int = setting(1, "Residual blocks at each resolution.", at_least=0)
    decoder: Literal["before", "after"] = setting(
        "after",
        "Where the decoder has its blocks: before each doubling of the resolution, or after it, as "
        "the encoder backwards has them. Blocks before are cheaper and have more parameters.",
    )
    activation: Literal["relu", "elu", "silu"] = setting("relu", "The activation.")
    dropout: float = setting(0.0, "Share of the units left out.", at_least=0, below=1)


@dataclass(frozen=True)
class DataConfig(Settings):
    """How MNIST's training images are split."""

    train_images: int = setting(
        0, "The first so many train; 0 for all that validation leaves.", at_least=0
    )
    validation_images: int = setting(10_000, "The last so many validate.", at_least=1)


@dataclass(frozen=True)
class AugmentConfig(Settings):
    """By how much training images are deformed, at a strength of one; stages say at which."""

    shift: float = setting(0.5, "Pixels in either direction, at most.", at_least=0)
    rotation: float = setting(8.0, "Degrees, at most.", at_least=0)
    zoom: float = setting(
        0.06, "Share of the size, at most; width and height on their own.", at_least=0, below=1
    )
    shear: float = setting(0.1, "Shear, at most.", at_least=0)
    elastic: float = setting(
        0.5, "Pixels: the spread of the displacements that bend an image.", at_least=0
    )
    contrast: float = setting(
        0.16,
        "Contrast gained from a strength of a half on, as much as resampling has blurred.",
        at_least=0,
    )


@dataclass(frozen=True)
class StageConfig(Settings):
    """How encoder and decoder are trained."""

    steps: int = setting(100_000, "Training steps.", at_least=0)
    batch_size: int = setting(256, "Images per step.", at_least=1)
    learning_rate: float = setting(5e-4, "The highest learning rate.", above=0)
    samples: int = setting(
        1,
        "1 is the evidence lower bound, more is the importance-weighted bound of that many.",
        at_least=1,
    )
    beta: float = setting(0.9, "Weight of the KL divergence.", at_least=0)
    beta_warmup: int = setting(0, "Steps in which it rises from zero.", at_least=0)
    prior_warmup: int = setting(0, "Steps that train a learnt prior alone.", at_least=0)
    augment: float = setting(
        0.0, "Strength at which training images are deformed at first.", at_least=0
    )
    augment_end: float = setting(0.0, "That strength at the end.", at_least=0)
    augment_until: float = setting(
        0.8,
        "Share of the steps from which on it has its last value; it changes from half of it on.",
        above=0,
        at_most=1,
    )
    averaging: float = setting(
        0.0, "Decay of the average of the weights; 0 for none.", at_least=0, below=1
    )
    clip: float = setting(0.0, "The largest norm of a gradient; 0 for none.", at_least=0)
    weight_decay: float = setting(0.0, "Decoupled weight decay.", at_least=0)
    validate_every: int = setting(1_000, "Steps between two validations.", at_least=1)
    patience: int = setting(
        0,
        "Validations without improvement after which training stops; 0 for never.",
        at_least=0,
    )
    seed: int = setting(0, "Seed of everything drawn at random.", at_least=0)
    device: str = setting("auto", 'Where to train: "auto", "cpu" or "cuda".')
    precision: Literal["auto", "float32", "bfloat16"] = setting("auto", PRECISIONS)
    compiled: bool = setting(
        False, "Whether residual blocks go through torch.compile: a wait, then faster steps."
    )
    checkpoint_seconds: float = setting(30.0, "Seconds between two checkpoints.", at_least=0)
    file: str = setting("", "A trained one instead, or one to go on from.")
    start: int = setting(0, "The first step, for a stage that goes on from a file.", at_least=0)

    # What is left of settings that were removed: the only value they may still have.
    REMOVED: ClassVar[dict[str, Any]] = {"free_bits": 0.0}


@dataclass(frozen=True)
class PriorConfig(Settings):
    """What the AEM is fitted to."""

    draws: int = setting(
        100,
        "Each draw binarises every image afresh, encodes it and draws one latent vector: a fixed "
        "table of many draws stands in for fresh noise in every batch.",
        at_least=1,
    )
    resample: int = setting(
        1,
        "Of so many latents that an image draws, one is kept in proportion to its importance weight: "
        "rows of the model's own posterior rather than the encoder's. 1 is the paper's aggregate "
        "posterior.",
        at_least=1,
    )
    file: str = setting("", "A fitted one to evaluate instead.")


@dataclass(frozen=True)
class EvaluationConfig(Settings):
    """How the bounds are computed. A number of images of 0 leaves that score out."""

    split: Literal["test", "validation"] = setting(
        "test", "The split to score: validation, to choose between settings."
    )
    samples: int = setting(50, "Latents per image, for every bound.", at_least=1)
    images: int = setting(
        IMAGES, "Images for the Gaussian prior and the proposal.", at_least=1, at_most=IMAGES
    )
    importance_images: int = setting(
        IMAGES, "Images for importance sampling.", at_least=0, at_most=IMAGES
    )
    importance_samples: int = setting(1_000, "Its draws per conditional, as published.", at_least=1)
    kde_images: int = setting(IMAGES, "Images for AEM-KDE.", at_least=0, at_most=IMAGES)
    kde_samples: int = setting(1_000, "Its kernels per conditional.", at_least=1)
    kde_fit_images: int = setting(2_000, "Validation images that fit its two numbers.", at_least=1)
    quadrature_images: int = setting(
        1_000, "Images for the quadrature.", at_least=0, at_most=IMAGES
    )
    tolerance: float = setting(1e-2, "Largest error, nats per latent vector.", above=0)
    seconds: float = setting(
        0.0,
        "Seconds after which the three slow scores stop at the images they have; 0: never.",
        at_least=0,
    )
    seed: int = setting(0, "Seed of everything drawn at random.", at_least=0)


@dataclass(frozen=True)
class VaeConfig:
    """The settings of one run: encoder and decoder, their training, the prior and the scores.

    Parameters
    ----------
    vae
        sizes of encoder and decoder.
    data
        how MNIST's training images are split.
    augment
        by how much training images are deformed.
    stage_one
        how encoder and decoder are trained under the Gaussian prior.
    joint
        how they are trained together with a proposal as their prior, if for any steps.
    model
        sizes and forms of the AEM's networks.
    train
        how the AEM is trained.
    prior
        what it is fitted to.
    evaluation
        how the bounds are computed.
    """

    vae: NetworkConfig = field(default_factory=NetworkConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    stage_one: StageConfig = field(default_factory=StageConfig)
    joint: StageConfig = field(default_factory=lambda: StageConfig(steps=0, beta=1.0))
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    prior: PriorConfig = field(default_factory=PriorConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        if not self.stage_one.steps and not self.stage_one.file:
            raise AemError("stage_one: 'steps' must be positive, or 'file' must name a trained one")
        if self.joint.file and not self.stage_one.file:
            raise AemError(
                "joint: 'file' needs 'stage_one.file' as well, for the scores of the Gaussian prior"
            )
        for name in ("stage_one", "joint"):
            stage = getattr(self, name)
            if stage.start and not stage.file:
                raise AemError(f"{name}: 'start' needs a 'file' to continue from")
            if stage.start and stage.start >= stage.steps:
                raise AemError(f"{name}: 'start' must be less than 'steps', {stage.steps}")


def vae_experiment(
    preset: str, file: Path | None = None, assignments: Sequence[str] = ()
) -> VaeConfig:
    """Return the settings of a run.

    Parameters
    ----------
    preset
        "fast", "paper" or "best".
    file
        a TOML file whose settings are laid over the preset.
    assignments
        single settings laid over both, as `section.key=value`.
    """
    return from_mapping(VaeConfig, layered_settings("vae", preset, file, assignments))
