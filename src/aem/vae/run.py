"""The paper's latent-variable experiment from images to table 2 and figure 6.

Every stage keeps its checkpoints in a folder of its own, so the same command goes on wherever it was
stopped: a finished stage is read back, not repeated, and the scores can be computed again with other
settings of [evaluation] alone.
"""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aem.config import read_toml, to_mapping, to_toml
from aem.errors import AemError
from aem.evaluation import Report, silent
from aem.io import read_tensors, write_atomically, write_json
from aem.model import AEM
from aem.plots import save_figure
from aem.provenance import provenance
from aem.reproduce import check_writable, training_summary
from aem.training.checkpoint import Progress
from aem.training.loop import choose_device, fit
from aem.vae.binarise import fixed_binarisation
from aem.vae.config import VaeConfig
from aem.vae.evaluation import TEST_SEED, Evaluation
from aem.vae.figure import figure_six, sample_images
from aem.vae.files import digest, load_prior, load_vae, save_prior, save_vae
from aem.vae.images import Images, load_images
from aem.vae.latent import LatentModel
from aem.vae.latents import Sampler, aggregate_posterior, draw_table
from aem.vae.networks import ConvolutionalVae
from aem.vae.prior import STANDARDISED_ON, TRAIN_SEED, VALIDATION_SEED
from aem.vae.table import table_two
from aem.vae.training import train_stage

CHECKPOINT = "checkpoint.safetensors"
SHOWN = 64  # images of the figure
JOINT_DRAWS = 4  # of every image, for the standardisation of a jointly trained prior


@dataclass(frozen=True)
class Run:
    """What a run leaves behind."""

    vae: ConvolutionalVae
    prior: AEM
    metrics: dict[str, Any]
    folder: Path


class Experiment:
    """One run, stage after stage; each method returns what the next one needs."""

    def __init__(
        self, config: VaeConfig, folder: Path, *, quiet: bool = False, report: Report = silent
    ) -> None:
        self.config, self.folder = config, folder
        self.quiet, self.report = quiet, report
        self.device = choose_device(config.stage_one.device)
        for stage in (config.joint, config.train):
            if choose_device(stage.device) != self.device:
                raise AemError("stage_one, joint and train must name the same device")
        self.history: dict[str, Any] = {}

    def remember(self, stage: str, progress: Progress) -> None:
        """Keep a stage's curve for the metrics."""
        self.history[stage] = {
            "steps": progress.step,
            "seconds": round(progress.seconds, 2),
            **training_summary(progress),
        }

    def stage_one(self, images: Images) -> ConvolutionalVae:
        """Encoder and decoder under the Gaussian prior, trained or read from a file."""
        config = self.config.stage_one
        if config.file:
            vae = load_vae(config.file, self.device)
            if vae.config != self.config.vae:
                raise AemError(
                    f"{config.file} has the network {vae.config}, [vae] asks for {self.config.vae}"
                )
            return vae
        torch.manual_seed(config.seed)
        vae = ConvolutionalVae(self.config.vae)
        progress = train_stage(
            LatentModel(vae), images, config, folder=self.folder / "stage_one", quiet=self.quiet
        )
        self.remember("stage_one", progress)
        return vae

    def check_files(self, images: Images) -> None:
        """Refuse files that do not fit each other before anything is written."""
        for section, stage in (("data", "stage_one"), ("prior", "stage_two")):
            self.check_section(section, stage)
        if self.config.stage_one.file:
            vae = self.stage_one(images)
            if self.config.prior.file and not self.config.joint.steps:
                load_prior(self.config.prior.file, vae)

    def check_section(self, section: str, stage: str) -> None:
        """Refuse to go on with a stage of other data: its checkpoint knows its own settings only."""
        settings = self.folder / "config.toml"
        if not (settings.exists() and (self.folder / stage / CHECKPOINT).exists()):
            return
        before = read_toml(settings).get(section, {})
        for key, value in to_mapping(getattr(self.config, section)).items():
            if key != "file" and before.get(key) != value:
                raise AemError(
                    f"{self.folder} was made with {section}.{key} = {before.get(key)}, this run asks "
                    f"for {value}; choose another folder or the same settings"
                )

    def joint(self, vae: ConvolutionalVae, images: Images) -> AEM:
        """Encoder, decoder and a proposal as their prior, trained together from stage one on."""
        sampler = aggregate_posterior(vae, images.train)
        prior = self.fresh_prior(vae, sampler, self.folder / "joint", JOINT_DRAWS)
        progress = train_stage(
            LatentModel(vae, prior),
            images,
            self.config.joint,
            folder=self.folder / "joint",
            quiet=self.quiet,
        )
        self.remember("joint", progress)
        return prior

    def fresh_prior(self, vae: ConvolutionalVae, sampler: Sampler, folder: Path, draws: int) -> AEM:
        """A new AEM that fits the latents, or the one this run began with.

        Written down before training: on a GPU the same latents drawn again may differ in their last
        bits, and a checkpoint refuses another standardisation.
        """
        path = folder / "initial.safetensors"
        if path.exists():
            return load_prior(path, vae, self.device)
        torch.manual_seed(self.config.train.seed)
        rows = draw_table(sampler, draws, TRAIN_SEED)
        prior = AEM.for_data(self.config.model, rows[:STANDARDISED_ON]).to(self.device)
        save_prior(prior, vae, path)
        return prior

    def stage_two(self, vae: ConvolutionalVae, images: Images, joint: AEM | None) -> AEM:
        """The AEM, fitted to the aggregate posterior; it starts where a joint prior ended."""
        settings, folder = self.config.prior, self.folder / "stage_two"
        if settings.file:
            return load_prior(settings.file, vae, self.device)

        def sampler(split: torch.Tensor) -> Sampler:
            return aggregate_posterior(vae, split, resample=settings.resample, prior=joint)

        if joint is None:
            prior = self.fresh_prior(vae, sampler(images.train), folder, 1)
        else:
            prior = AEM(joint.config).to(self.device)
            prior.load_state_dict(joint.state_dict())
        # A finished stage is only read back: one draw will do to say so.
        draws = 1 if _is_finished(folder / CHECKPOINT, self.config.train.steps) else settings.draws
        rows = draw_table(
            sampler(images.train),
            draws,
            TRAIN_SEED,
            lambda done: self.report("drawing latents to fit", done, draws),
        )
        held_out = draw_table(sampler(images.validation), 1, VALIDATION_SEED)
        progress = fit(prior, rows, held_out, self.config.train, folder=folder, quiet=self.quiet)
        self.remember("stage_two", progress)
        return prior


def _is_finished(checkpoint: Path, steps: int) -> bool:
    """Whether a stage was trained to its end."""
    if not checkpoint.exists():
        return False
    _, metadata = read_tensors(checkpoint, "checkpoint")
    return bool(metadata["progress"]["step"] >= steps)


def run_vae(
    config: VaeConfig, preset: str, folder: Path, *, quiet: bool = False, report: Report = silent
) -> Run:
    """Run all stages; leaves metrics, both models, settings, table and figure in the folder."""
    experiment = Experiment(config, folder, quiet=quiet, report=report)
    images = load_images(config.data)
    experiment.check_files(images)
    check_writable(folder)
    images = images.to(experiment.device)
    write_atomically(folder / "config.toml", to_toml(config).encode())

    vae = experiment.stage_one(images)
    first = copy.deepcopy(vae).eval().requires_grad_(False) if config.joint.steps else None
    joint = experiment.joint(vae, images) if config.joint.steps else None
    vae.eval().requires_grad_(False)
    save_vae(vae, folder / "vae.safetensors", preset=preset, digest=digest(vae.state_dict()))
    if joint is not None:
        joint.eval().requires_grad_(False)
        save_prior(joint, vae, folder / "joint_prior.safetensors", preset=preset)
    prior = experiment.stage_two(vae, images, joint)
    prior.eval().requires_grad_(False)
    save_prior(prior, vae, folder / "prior.safetensors", preset=preset)
    figure = figure_six(
        fixed_binarisation(images.test[:SHOWN], TEST_SEED),
        sample_images(vae, prior, SHOWN, config.evaluation.seed),
    )
    save_figure(figure, folder / "figure.png")
    metrics = _evaluate(experiment, preset, vae, images, prior, joint, first)
    write_atomically(folder / "table.md", table_two(metrics["priors"]).encode())
    return Run(vae, prior, metrics, folder)


def _evaluate(
    experiment: Experiment,
    preset: str,
    vae: ConvolutionalVae,
    images: Images,
    prior: AEM,
    joint: AEM | None,
    first: ConvolutionalVae | None,
) -> dict[str, Any]:
    """All scores; the metrics are written after each of them, for some take long."""
    config = experiment.config
    metrics: dict[str, Any] = {
        "task": "vae",
        "preset": preset,
        **provenance(config, config.stage_one.seed, experiment.device),
        "seconds": round(sum(stage["seconds"] for stage in experiment.history.values()), 2),
        "stage_one": digest(vae.state_dict()),
        "train_images": len(images.train),
        "validation_images": len(images.validation),
    }

    def finished(records: dict[str, Any]) -> None:
        metrics["priors"] = records
        metrics["evaluation_seconds"] = round(sum(r["seconds"] for r in records.values()), 2)
        metrics["training"] = experiment.history
        write_json(experiment.folder / "metrics.json", metrics)

    folder = experiment.folder / "scores"
    evaluation = Evaluation(vae, images, config.evaluation, folder, experiment.report, finished)
    evaluation.all_priors(prior, joint=joint, stage_one=first)
    return metrics
