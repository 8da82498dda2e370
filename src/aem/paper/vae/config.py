"""Settings of the latent-variable experiment: one dataclass a section of its TOML file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aem.base.settings import from_mapping
from aem.config import ModelConfig, TrainConfig
from aem.errors import AemError
from aem.paper.presets import layered_settings


@dataclass(frozen=True)
class NetworkConfig:
    """Encoder and decoder, mirror images of each other."""

    latents: int = 32
    channels: int = 16  # at full resolution; doubled three times on the way down
    blocks: int = 1  # residual blocks at each resolution
    # Where the decoder has them: before each doubling of the resolution, or after it, as the encoder
    # backwards has them. Blocks before are cheaper and have more parameters.
    decoder: Literal["before", "after"] = "after"
    activation: Literal["relu", "elu", "silu"] = "relu"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _positive("vae", self, "latents", "channels")
        _not_negative("vae", self, "blocks")
        _fraction("vae", self, "dropout")


@dataclass(frozen=True)
class DataConfig:
    """How MNIST's training images are split."""

    train_images: int = 0  # the first so many; 0 for all that validation leaves
    validation_images: int = 10_000  # the last so many

    def __post_init__(self) -> None:
        _positive("data", self, "validation_images")
        _not_negative("data", self, "train_images")


@dataclass(frozen=True)
class AugmentConfig:
    """By how much training images are deformed, at a strength of one; stages say at which."""

    shift: float = 0.5  # pixels at most in either direction, like the next three
    rotation: float = 8.0  # degrees
    zoom: float = 0.06  # share of the size, width and height on their own
    shear: float = 0.1
    elastic: float = 0.5  # pixels, the spread of the displacements that bend an image
    contrast: float = 0.16  # gained from a strength of a half on, as much as resampling has blurred

    def __post_init__(self) -> None:
        _not_negative("augment", self, "shift", "rotation", "shear", "elastic", "contrast")
        _fraction("augment", self, "zoom")


@dataclass(frozen=True)
class StageConfig:
    """How encoder and decoder are trained.

    `samples` = 1 is the evidence lower bound, more is the importance-weighted bound of that many.
    """

    steps: int = 100_000
    batch_size: int = 256
    learning_rate: float = 5e-4
    samples: int = 1
    beta: float = 0.9  # weight of the KL divergence
    beta_warmup: int = 0  # steps in which it rises from zero
    free_bits: float = 0.0  # nats a latent that cost nothing; Gaussian prior and one sample only
    prior_warmup: int = 0  # steps that train a learnt prior alone
    augment: float = 0.0  # training images are deformed as [augment] says times this at first, …
    augment_end: float = 0.0  # … and times this at the end,
    augment_until: float = 0.8  # from this share of the steps on; it changes from half of it on
    averaging: float = 0.0  # decay of the weight average; 0 for none
    clip: float = 0.0  # largest gradient norm; 0 for none
    weight_decay: float = 0.0
    validate_every: int = 1_000
    patience: int = 0  # validations without improvement before stopping; 0 for never
    seed: int = 0
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compiled: bool = (
        False  # residual blocks through torch.compile: a wait at first, then faster steps
    )
    checkpoint_seconds: float = 30.0
    file: str = ""  # a trained one instead, or to go on from
    start: int = 0  # the first step, for a stage that goes on from a file

    def __post_init__(self) -> None:
        _not_negative("stage", self, "steps", "beta", "beta_warmup", "free_bits", "prior_warmup")
        _not_negative("stage", self, "augment", "augment_end", "clip", "weight_decay", "patience")
        _not_negative("stage", self, "seed", "checkpoint_seconds", "start")
        _positive("stage", self, "batch_size", "learning_rate", "samples", "validate_every")
        _fraction("stage", self, "averaging")
        if not 0 < self.augment_until <= 1:
            raise AemError(f"stage: augment_until must lie in (0, 1], not {self.augment_until}")
        if self.free_bits and self.samples > 1:
            raise AemError("stage: free_bits needs samples = 1, the bound whose KL is known")


@dataclass(frozen=True)
class PriorConfig:
    """What the AEM is fitted to."""

    # Each draw binarises every image afresh, encodes it and draws one latent vector: a fixed table
    # of many draws stands in for fresh noise in every batch.
    draws: int = 100
    # Of so many latents an image draws, one is kept in proportion to its importance weight: rows of
    # the model's own posterior rather than the encoder's. 1 is the paper's aggregate posterior.
    resample: int = 1
    file: str = ""  # a fitted one to evaluate instead

    def __post_init__(self) -> None:
        _positive("prior", self, "draws", "resample")


@dataclass(frozen=True)
class EvaluationConfig:
    """How the bounds are computed. A number of images of 0 leaves that score out."""

    split: Literal["test", "validation"] = "test"  # validation, to choose between settings
    samples: int = 50  # latents an image, for every bound
    images: int = 10_000  # of the split: Gaussian prior and proposal
    importance_images: int = 10_000
    importance_samples: int = 1_000  # as published
    kde_images: int = 10_000
    kde_samples: int = 1_000
    kde_fit_images: int = 2_000  # of the validation set
    quadrature_images: int = 1_000
    tolerance: float = 1e-2  # nats a latent vector
    seconds: float = 0.0  # after which the three slow scores stop at the images they have; 0: never
    seed: int = 0

    def __post_init__(self) -> None:
        _positive("evaluation", self, "samples", "images", "importance_samples", "kde_samples")
        _positive("evaluation", self, "kde_fit_images", "tolerance")
        _not_negative("evaluation", self, "importance_images", "kde_images", "quadrature_images")
        _not_negative("evaluation", self, "seed", "seconds")
        for name in ("images", "importance_images", "kde_images", "quadrature_images"):
            if getattr(self, name) > 10_000:
                raise AemError(
                    f"evaluation: {name} must be at most 10000, the size of the test set"
                )


@dataclass(frozen=True)
class VaeConfig:
    """One run: encoder and decoder, their training, the prior and the scores."""

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
            raise AemError("stage_one: steps must be positive, or file must name a trained one")
        if self.joint.free_bits:
            raise AemError("joint: free_bits needs the Gaussian prior, whose KL is known")
        if self.joint.file and not self.stage_one.file:
            raise AemError(
                "joint: a file needs stage_one.file too, for the Gaussian prior's scores"
            )
        for name in ("stage_one", "joint"):
            stage = getattr(self, name)
            if stage.start and not stage.file:
                raise AemError(f"{name}: start needs a file to go on from")
            if stage.start and stage.start >= stage.steps:
                raise AemError(f"{name}: start must be less than steps, {stage.steps}")


def vae_experiment(
    preset: str, file: Path | None = None, assignments: Sequence[str] = ()
) -> VaeConfig:
    """The settings of a run."""
    return from_mapping(VaeConfig, layered_settings("vae", preset, file, assignments))


def _positive(section: str, config: object, *names: str) -> None:
    for name in names:
        if not getattr(config, name) > 0:
            raise AemError(f"{section}: {name} must be positive, not {getattr(config, name)}")


def _not_negative(section: str, config: object, *names: str) -> None:
    for name in names:
        if not getattr(config, name) >= 0:
            raise AemError(f"{section}: {name} must not be negative, not {getattr(config, name)}")


def _fraction(section: str, config: object, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise AemError(f"{section}: {name} must lie in [0, 1), not {getattr(config, name)}")
