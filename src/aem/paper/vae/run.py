"""The paper's latent-variable experiment from images to table 2 and figure 6.

Every stage keeps its checkpoints in a folder of its own, so the same command goes on wherever it was
stopped: a finished stage is read back, not repeated, and the scores can be computed again with other
settings of [evaluation] alone.
"""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aem.base.devices import choose_device
from aem.base.files import check_writable, read_tensors, write_atomically, write_json
from aem.base.progress import Report, silent
from aem.base.provenance import provenance
from aem.base.settings import read_toml, refuse_other, to_mapping, to_toml
from aem.errors import AemError
from aem.model.aem import AEM
from aem.paper.plane.run import training_summary
from aem.paper.plots import save_figure
from aem.paper.vae.binarise import fixed_binarisation
from aem.paper.vae.config import StageConfig, VaeConfig
from aem.paper.vae.evaluate import TEST_SEED, PriorScoring
from aem.paper.vae.figure import figure_six, sample_images
from aem.paper.vae.files import load_stage, save_vae
from aem.paper.vae.images import Images, load_images
from aem.paper.vae.latents import aggregate_posterior
from aem.paper.vae.networks import ConvolutionalVae
from aem.paper.vae.stages.latent import LatentModel
from aem.paper.vae.stages.training import train_stage
from aem.paper.vae.table import table_two
from aem.training.checkpoint import TrainingState
from aem.training.loop import fit
from aem.vae.files import digest, load_prior, save_prior
from aem.vae.prior import STANDARDISED_ON, TRAIN_SEED, VALIDATION_SEED, LatentSampler, draw_table

CHECKPOINT = "checkpoint.safetensors"
SHOWN = 64  # images in the figure
JOINT_DRAWS = 4  # latents per image that a jointly trained prior is standardised on


@dataclass(frozen=True)
class VaeRun:
    """The results of a run of the autoencoder.

    Parameters
    ----------
    vae
        encoder and decoder.
    prior
        the AEM fitted to their latents.
    metrics
        what metrics.json holds.
    folder
        folder with all files of the run.
    """

    vae: ConvolutionalVae
    prior: AEM
    metrics: dict[str, Any]
    folder: Path


class Experiment:
    """The stages of one run; each method returns what the next one needs.

    Parameters
    ----------
    config
        all settings of the run.
    folder
        folder of the run; stopped stages in it are continued.
    quiet
        whether to show no progress.
    report
        called as `report(what, done, total)` while the work goes on.
    """

    def __init__(
        self,
        config: VaeConfig,
        folder: Path,
        *,
        quiet: bool = False,
        report: Report = silent,
    ) -> None:
        self.config, self.folder = config, folder
        self.quiet, self.report = quiet, report
        self.device = choose_device(config.stage_one.device)
        for stage in (config.joint, config.train):
            if choose_device(stage.device) != self.device:
                raise AemError("stage_one, joint and train must name the same device")
        self.history: dict[str, Any] = {}

    def remember(self, stage: str, progress: TrainingState) -> None:
        """Keep a stage's training curve for the metrics."""
        self.history[stage] = {
            "steps": progress.step,
            "seconds": round(progress.seconds, 2),
            **training_summary(progress),
        }

    def stage_one(self, images: Images) -> ConvolutionalVae:
        """Train encoder and decoder under the Gaussian prior, read them from a file, or both.

        Parameters
        ----------
        images
            the digits.
        """
        config = self.config.stage_one
        if config.file:
            vae = self.read_vae(config.file)
            if not config.start:
                return vae
        else:
            torch.manual_seed(config.seed)
            vae = ConvolutionalVae(self.config.vae)
        self.train("stage_one", LatentModel(vae), images, config)
        return vae

    def train(self, stage: str, model: LatentModel, images: Images, config: StageConfig) -> None:
        """Train a stage in its folder, and keep its training curve.

        Parameters
        ----------
        stage
            name of the stage.
        model
            what is trained, in place.
        images
            the digits.
        config
            how the stage is trained.
        """
        progress = train_stage(
            model,
            images,
            config,
            augment=self.config.augment,
            folder=self.folder / stage,
            quiet=self.quiet,
        )
        self.remember(stage, progress)

    def read_vae(self, file: str) -> ConvolutionalVae:
        """Read encoder and decoder of stage one, from a saved model or a checkpoint."""
        model = load_stage(file)
        if model.prior is not None:
            raise AemError(f"{file} is the checkpoint of a joint stage, not of a stage one")
        return self.adopt_vae(model.vae, file)

    def read_joint(self, file: str) -> tuple[ConvolutionalVae, AEM]:
        """Read encoder, decoder and prior of a joint stage's checkpoint.

        Parameters
        ----------
        file
            what the settings name.

        Returns
        -------
        vae : ConvolutionalVae
            encoder and decoder.
        prior : AEM
            the prior that was trained with them.
        """
        model = load_stage(file)
        if model.prior is None:
            raise AemError(f"{file} is of a stage one, not the checkpoint of a joint stage")
        found, asked = model.prior.config, self.config.model
        asked = replace(asked, features=self.config.vae.latents)
        if asked != replace(found, dropout=asked.dropout, energy_dropout=asked.energy_dropout):
            raise AemError(f"{file} has the prior {found}, [model] asks for {asked}")
        prior = AEM(asked)
        prior.load_state_dict(model.prior.state_dict())
        return self.adopt_vae(model.vae, file), prior.to(self.device)

    def adopt_vae(self, found: ConvolutionalVae, file: str) -> ConvolutionalVae:
        """Return a network with the weights found and this run's dropout; other shapes are refused."""
        asked = self.config.vae
        if replace(found.config, dropout=asked.dropout) != asked:
            raise AemError(f"{file} has the network {found.config}, [vae] asks for {asked}")
        vae = ConvolutionalVae(asked)
        vae.load_state_dict(found.state_dict())
        return vae.to(self.device).eval()

    def check_files(self) -> None:
        """Refuse files that do not fit each other before anything is written."""
        for section, stage in (
            ("data", "stage_one"),
            ("augment", "stage_one"),
            ("prior", "stage_two"),
        ):
            self.check_section(section, stage)
        first, joint = self.config.stage_one, self.config.joint
        vae = self.read_vae(first.file) if first.file else None
        if joint.file:
            vae, _ = self.read_joint(joint.file)
        if vae is None or not self.config.prior.file:
            return
        if (first.start if not joint.file else joint.start) or (joint.steps and not joint.file):
            return  # encoder and decoder will be trained further, so the prior cannot be checked yet
        load_prior(self.config.prior.file, vae)

    def check_section(self, section: str, stage: str) -> None:
        """Raise an error if a stage was begun with other data, which its checkpoint does not know.

        Parameters
        ----------
        section
            name of a section of the settings that decides the data.
        stage
            name of the stage.
        """
        settings = self.folder / "config.toml"
        if not (settings.exists() and (self.folder / stage / CHECKPOINT).exists()):
            return
        asked = to_mapping(getattr(self.config, section))
        asked.pop("file", None)
        refuse_other(self.folder, read_toml(settings).get(section, {}), asked, f"{section}.")

    def joint(self, vae: ConvolutionalVae, images: Images) -> tuple[ConvolutionalVae, AEM]:
        """Train encoder, decoder and a proposal as their prior together, starting from stage one.

        If the settings name a checkpoint of such a stage, training continues from it, or it is used.

        Parameters
        ----------
        vae
            encoder and decoder of stage one.
        images
            the digits.

        Returns
        -------
        vae : ConvolutionalVae
            encoder and decoder after the stage.
        prior : AEM
            the prior that was trained with them.
        """
        config = self.config.joint
        if config.file:
            vae, prior = self.read_joint(config.file)
            if not config.start:
                return vae, prior
        else:
            sampler = aggregate_posterior(vae, images.train)
            prior = self.fresh_prior(vae, sampler, self.folder / "joint", JOINT_DRAWS)
        self.train("joint", LatentModel(vae, prior), images, config)
        return vae, prior

    def fresh_prior(
        self, vae: ConvolutionalVae, sampler: LatentSampler, folder: Path, draws: int
    ) -> AEM:
        """Return a new AEM that fits the latents, or the one this run began with.

        It is written down before training: on a GPU the same latents drawn again may differ in
        their last bits, and a checkpoint refuses another standardisation.

        Parameters
        ----------
        vae
            encoder and decoder whose latents it is for.
        sampler
            draws one latent of every training image by a seed.
        folder
            where it is written, or was.
        draws
            how many latents of each image it is fitted to.
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
        """Fit the AEM to the aggregate posterior; it starts where a joint prior ended.

        Parameters
        ----------
        vae
            encoder and decoder.
        images
            the digits.
        joint
            the prior of the joint stage; None if there was none.
        """
        settings, folder = self.config.prior, self.folder / "stage_two"
        if settings.file:
            return load_prior(settings.file, vae, self.device)

        def sampler(split: torch.Tensor) -> LatentSampler:
            return aggregate_posterior(vae, split, resample=settings.resample, prior=joint)

        if joint is None:
            prior = self.fresh_prior(vae, sampler(images.train), folder, 1)
        else:
            prior = AEM(joint.config).to(self.device)
            prior.load_state_dict(joint.state_dict())
        # A finished stage is only read, and one draw per image is enough for that.
        draws = 1 if _is_finished(folder / CHECKPOINT, self.config.train.steps) else settings.draws
        rows = draw_table(
            sampler(images.train),
            draws,
            TRAIN_SEED,
            self.report,
        )
        held_out = draw_table(sampler(images.validation), 1, VALIDATION_SEED)
        progress = fit(prior, rows, held_out, self.config.train, folder=folder, quiet=self.quiet)
        self.remember("stage_two", progress)
        return prior


def _is_finished(checkpoint: Path, steps: int) -> bool:
    """Return whether a stage was trained to its last step."""
    if not checkpoint.exists():
        return False
    _, metadata = read_tensors(checkpoint, "checkpoint")
    return bool(metadata["progress"]["step"] >= steps)


def run_vae(
    config: VaeConfig,
    preset: str,
    folder: Path,
    *,
    quiet: bool = False,
    report: Report = silent,
) -> VaeRun:
    """Run all stages, and write metrics, both models, settings, table and figure.

    Parameters
    ----------
    config
        all settings of the run.
    preset
        the name that the results are recorded under.
    folder
        folder of the run; a stopped run in it is continued.
    quiet
        whether to show no progress of the training.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    experiment = Experiment(config, folder, quiet=quiet, report=report)
    images = load_images(config.data)
    experiment.check_files()
    check_writable(folder)
    images = images.to(experiment.device)
    write_atomically(folder / "config.toml", to_toml(config).encode())

    vae = experiment.stage_one(images)
    first: ConvolutionalVae | None = None
    joint: AEM | None = None
    if config.joint.steps or config.joint.file:
        first = copy.deepcopy(vae).eval().requires_grad_(False)
        vae, joint = experiment.joint(vae, images)
    vae.eval().requires_grad_(False)
    save_vae(vae, folder / "vae.aem", preset=preset, digest=digest(vae.state_dict()))
    if joint is not None:
        joint.eval().requires_grad_(False)
        save_prior(joint, vae, folder / "joint_prior.aem", preset=preset)
    results = Results(experiment, preset, vae, images)
    results.evaluation.trained_priors(joint=joint, stage_one=first)
    prior = experiment.stage_two(vae, images, joint)
    prior.eval().requires_grad_(False)
    save_prior(prior, vae, folder / "prior.aem", preset=preset)
    figure = figure_six(
        fixed_binarisation(images.test[:SHOWN], TEST_SEED),
        sample_images(vae, prior, SHOWN, config.evaluation.seed),
    )
    save_figure(figure, folder / "figure.png")
    results.evaluation.fitted_priors(prior)
    return VaeRun(vae, prior, results.metrics, folder)


class Results:
    """Writes metrics and table of a run after each score, as some scores take long.

    Parameters
    ----------
    experiment
        the run.
    preset
        the name that the results are recorded under.
    vae
        encoder and decoder that are scored.
    images
        the digits.
    """

    def __init__(
        self, experiment: Experiment, preset: str, vae: ConvolutionalVae, images: Images
    ) -> None:
        config = experiment.config
        self.experiment = experiment
        self.metrics: dict[str, Any] = {
            "task": "vae",
            "preset": preset,
            **provenance(config, config.stage_one.seed, experiment.device),
            "stage_one": digest(vae.state_dict()),
            "train_images": len(images.train),
            "validation_images": len(images.validation),
        }
        self.evaluation = PriorScoring(
            vae,
            images,
            config.evaluation,
            experiment.folder / "scores",
            experiment.report,
            self.write,
        )

    def write(self, records: dict[str, Any]) -> None:
        """Write metrics and table with what is known so far.

        Parameters
        ----------
        records
            records of the priors by name.
        """
        history, folder = self.experiment.history, self.experiment.folder
        self.metrics |= {
            "seconds": round(sum(stage["seconds"] for stage in history.values()), 2),
            "priors": records,
            "evaluation_seconds": round(sum(r["seconds"] for r in records.values()), 2),
            "training": history,
        }
        write_json(folder / "metrics.json", self.metrics)
        write_atomically(folder / "table.md", table_two(records).encode())
