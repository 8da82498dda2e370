"""Settings of the latent-variable experiment: one dataclass per section of its TOML file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from aem.base.settings import Settings, from_mapping, help_of, setting
from aem.config import ModelConfig, TrainConfig
from aem.errors import AemError
from aem.paper.presets import layered_settings

IMAGES = 10_000  # of the test set
PRECISIONS = help_of(TrainConfig, "precision")


@dataclass(frozen=True)
class NetworkConfig(Settings):
    """Encoder and decoder, mirror images of each other."""

    latents: int = setting(32, "Number of latent variables.", at_least=1)
    channels: int = setting(
        16, "Channels at full resolution; doubled at each of three downsamplings.", at_least=1
    )
    blocks: int = setting(1, "Number of residual blocks at each resolution.", at_least=0)
    decoder: Literal["before", "after"] = setting(
        "after",
        "Whether the decoder has its blocks before or after each upsampling. After mirrors the "
        "encoder; before is cheaper and has more parameters.",
    )
    activation: Literal["relu", "elu", "silu"] = setting(
        "relu", "Activation of encoder and decoder."
    )
    dropout: float = setting(0.0, "Dropout rate.", at_least=0, below=1)


@dataclass(frozen=True)
class DataConfig(Settings):
    """How MNIST's training images are split."""

    train_images: int = setting(
        0,
        "Number of training images, from the start; 0 for all but the validation set.",
        at_least=0,
    )
    validation_images: int = setting(
        10_000, "Number of validation images, from the end of the training images.", at_least=1
    )


@dataclass(frozen=True)
class AugmentConfig(Settings):
    """Data augmentation: how much training images are deformed at strength 1."""

    shift: float = setting(0.5, "Largest shift in pixels, in each direction.", at_least=0)
    rotation: float = setting(8.0, "Largest rotation in degrees.", at_least=0)
    zoom: float = setting(
        0.06, "Largest relative change of width and of height.", at_least=0, below=1
    )
    shear: float = setting(0.1, "Largest shear.", at_least=0)
    elastic: float = setting(
        0.5, "Standard deviation of elastic displacements, in pixels.", at_least=0
    )
    contrast: float = setting(
        0.16,
        "Contrast that is added from strength 0.5 on, to compensate for the blur of resampling.",
        at_least=0,
    )


@dataclass(frozen=True)
class StageConfig(Settings):
    """The settings of a training stage of encoder and decoder."""

    steps: int = setting(100_000, "Number of training steps.", at_least=0)
    batch_size: int = setting(256, "Images per step.", at_least=1)
    learning_rate: float = setting(5e-4, "Peak learning rate.", above=0)
    samples: int = setting(
        1,
        "Latents per image: 1 for the evidence lower bound, more for the importance-weighted bound.",
        at_least=1,
    )
    beta: float = setting(0.9, "Weight of the KL divergence.", at_least=0)
    beta_warmup: int = setting(
        0, "Number of steps in which this weight rises from zero.", at_least=0
    )
    prior_warmup: int = setting(
        0, "Number of first steps that train a learnt prior alone.", at_least=0
    )
    augment: float = setting(0.0, "Strength of the data augmentation at the start.", at_least=0)
    augment_end: float = setting(0.0, "Strength of the data augmentation at the end.", at_least=0)
    augment_until: float = setting(
        0.8,
        "Fraction of the steps after which the augmentation has its final strength; it changes "
        "linearly from half of this fraction on.",
        above=0,
        at_most=1,
    )
    averaging: float = setting(
        0.0,
        "Decay of the exponential moving average of the weights; 0 for none.",
        at_least=0,
        below=1,
    )
    clip: float = setting(
        0.0, "Largest norm of the gradient, by clipping; 0 for no clipping.", at_least=0
    )
    weight_decay: float = setting(0.0, "Decoupled weight decay.", at_least=0)
    validate_every: int = setting(1_000, "Number of steps between two validations.", at_least=1)
    patience: int = setting(
        0,
        "Early stopping: number of validations without improvement after which training stops; 0 for "
        "never.",
        at_least=0,
    )
    seed: int = setting(0, "Seed of all random numbers.", at_least=0)
    device: str = setting("auto", 'Device: "auto", "cpu" or "cuda".')
    precision: Literal["auto", "float32", "bfloat16"] = setting("auto", PRECISIONS)
    compiled: bool = setting(
        False, "Whether torch.compile compiles the residual blocks: a slower start, faster steps."
    )
    checkpoint_seconds: float = setting(30.0, "Seconds between two checkpoints.", at_least=0)
    file: str = setting("", "File of a trained model, to be used as it is or trained further.")
    start: int = setting(0, "First step, if training continues from a file.", at_least=0)

    # Removed settings, with the only value that files may still have.
    REMOVED: ClassVar[dict[str, Any]] = {"free_bits": 0.0}


@dataclass(frozen=True)
class PriorConfig(Settings):
    """The latents that the AEM is fitted to."""

    draws: int = setting(
        100,
        "Latent vectors per image in the training set of the prior; for each one the image is "
        "binarised anew.",
        at_least=1,
    )
    resample: int = setting(
        1,
        "Number of latents from which one is resampled by importance weights, which approximates the "
        "exact posterior; 1 for the encoder's posterior, as in the paper.",
        at_least=1,
    )
    file: str = setting("", "File of a fitted prior, to be evaluated instead.")


@dataclass(frozen=True)
class EvaluationConfig(Settings):
    """How the bounds are computed. A number of images of 0 leaves that score out."""

    split: Literal["test", "validation"] = setting(
        "test", "Split that is scored; validation for choosing settings."
    )
    samples: int = setting(50, "Latents per image, for all bounds.", at_least=1)
    images: int = setting(
        IMAGES,
        "Number of images for the Gaussian prior and the proposal.",
        at_least=1,
        at_most=IMAGES,
    )
    importance_images: int = setting(
        IMAGES, "Number of images for importance sampling.", at_least=0, at_most=IMAGES
    )
    importance_samples: int = setting(
        1_000, "Proposal samples per conditional, as published.", at_least=1
    )
    kde_images: int = setting(IMAGES, "Number of images for AEM-KDE.", at_least=0, at_most=IMAGES)
    kde_samples: int = setting(1_000, "Kernels per conditional.", at_least=1)
    kde_fit_images: int = setting(
        2_000, "Number of validation images that its two parameters are fitted on.", at_least=1
    )
    quadrature_images: int = setting(
        1_000, "Number of images for the quadrature.", at_least=0, at_most=IMAGES
    )
    tolerance: float = setting(
        1e-2, "Largest error of the quadrature, in nats per latent vector.", above=0
    )
    seconds: float = setting(
        0.0,
        "Time limit in seconds of each slow score, which then covers fewer images; 0 for none.",
        at_least=0,
    )
    seed: int = setting(0, "Seed of all random numbers.", at_least=0)


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
