"""The experiment from the command line: on made-up images always, on MNIST where it is."""

import gzip
import json
import math
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from aem.cli import main
from aem.data import registry
from aem.errors import AemError
from aem.paper.vae.config import DataConfig, vae_experiment
from aem.paper.vae.files import load_stage, load_vae
from aem.paper.vae.images import Images, load_images
from aem.paper.vae.table import PUBLISHED
from aem.vae import load_prior
from tests.support.running import run as command

TINY = (
    "vae.latents=4",
    "vae.channels=2",
    "stage_one.steps=12",
    "stage_one.batch_size=8",
    "stage_one.validate_every=6",
    "model.hidden=16",
    "model.energy_hidden=8",
    "model.gamma=4",
    "model.components=3",
    "train.steps=12",
    "train.batch_size=16",
    "train.validate_every=6",
    "prior.draws=2",
    "evaluation.samples=5",
    "evaluation.images=12",
    "evaluation.importance_images=3",
    "evaluation.importance_samples=20",
    "evaluation.kde_images=2",
    "evaluation.kde_samples=20",
    "evaluation.kde_fit_images=4",
    "evaluation.quadrature_images=3",
)
JOINT = (
    "joint.steps=6",
    "joint.batch_size=8",
    "joint.samples=3",
    "joint.prior_warmup=2",
    "joint.validate_every=3",
    "prior.resample=4",
)


def run(monkeypatch: pytest.MonkeyPatch, out: Path, *values: str) -> int:
    words = [word for value in values for word in ("--set", value)]
    command = ["aem", "reproduce", "vae", "--out", str(out), "--quiet", *words]
    monkeypatch.setattr(sys, "argv", command)
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture
def made_up(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    """MNIST is not in the repository; spots will do."""
    monkeypatch.setattr("aem.paper.vae.run.load_images", lambda _: images)


def numbers(out: Path) -> dict[str, float]:
    metrics = json.loads((out / "metrics.json").read_text())
    return {name: record["log_prob"] for name, record in metrics["priors"].items()}


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("extra", [(), JOINT], ids=["two stages", "joint"])
def test_a_run_leaves_everything(
    extra: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    assert run(monkeypatch, out, *TINY, *extra) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    for key in ("task", "preset", "command", "config", "seed", "device", "commit", "seconds"):
        assert key in metrics
    priors = metrics["priors"]
    expected = {"gaussian", "proposal", "quadrature", "importance", "kde"}
    assert set(priors) == (expected | {"joint"} if extra else expected)
    for record in priors.values():
        assert record["log_prob"] >= record["elbo"]
        assert record["log_prob_2se"] > 0
    assert [priors[k]["images"] for k in ("gaussian", "quadrature", "kde")] == [12, 3, 2]
    assert 0 < priors["quadrature"]["log_prob_error"] < priors["quadrature"]["tolerance"]
    table = (out / "table.md").read_text()
    assert all(cell in table for row in PUBLISHED.values() for cell in row)
    assert f"{priors['gaussian']['log_prob']:.2f}".replace("-", "−") in table
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    vae = load_vae(out / "vae.aem")
    prior = load_prior(out / "prior.aem", vae)
    assert vae.logits(prior().sample((2,))).shape == (2, 1, 28, 28)

    # Other commands open the priors: as densities of latents.
    latents, found = tmp_path / "latents.csv", tmp_path / "found.json"
    for file in out.glob("*prior.aem"):
        assert command(monkeypatch, "sample", str(file), "-n", "20", "--out", str(latents)) == 0
        assert command(monkeypatch, "score", str(file), str(latents), "--out", str(found)) == 0
        score = np.mean([row["log_density"] for row in json.loads(found.read_text())])
        few = ("--samples", "0", "--kde-samples", "0", "--out", str(found))
        assert command(monkeypatch, "evaluate", str(file), str(latents), *few) == 0
        assert json.loads(found.read_text())["test_log_prob"] == pytest.approx(score, abs=0.02)

    # The same command again trains nothing and finds the same numbers.
    before = numbers(out)
    monkeypatch.setattr("aem.paper.vae.stages.steps.StageStep.run", None)
    monkeypatch.setattr("aem.training.objective.DensityStep.run", None)
    assert run(monkeypatch, out, *TINY, *extra) == 0
    assert numbers(out) == before


@pytest.mark.usefixtures("made_up")
def test_saved_files_are_scored_again_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other, again = tmp_path / "first", tmp_path / "other", tmp_path / "again"
    few = ("evaluation.kde_images=0", "evaluation.importance_images=0")
    assert run(monkeypatch, first, *TINY, *few) == 0
    assert run(monkeypatch, other, *TINY, *few, "stage_one.seed=1") == 0
    vae, prior = (f"stage_one.file='{first}/vae.aem'", "prior.file='{}/prior.aem'")
    assert run(monkeypatch, again, *TINY, *few, vae, prior.format(first)) == 0
    assert numbers(again) == numbers(first)
    assert "kde" not in numbers(again)
    held_out = "evaluation.split=validation"
    assert run(monkeypatch, again, *TINY, *few, vae, prior.format(first), held_out) == 0
    assert numbers(again)["gaussian"] != numbers(first)["gaussian"]
    capsys.readouterr()

    # A prior of another run, another number of latents, and a stage that changed under a prior.
    wrong = tmp_path / "wrong"
    assert run(monkeypatch, wrong, *TINY, vae, prior.format(other)) == 2
    assert "fitted to another stage one" in capsys.readouterr().err
    assert run(monkeypatch, wrong, *TINY, vae, "vae.latents=5") == 2
    assert "latents=4" in capsys.readouterr().err
    assert not wrong.exists(), "nothing half-written"
    assert run(monkeypatch, other, *TINY, *few, vae) == 2
    error = capsys.readouterr().err
    assert "fitted to another stage one" in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.usefixtures("made_up")
def test_an_unfinished_run_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From checkpoints: as they are, or from where they stopped."""
    few = [f"evaluation.{name}_images=0" for name in ("quadrature", "importance", "kde")]
    first, again, onward = (tmp_path / name for name in ("first", "again", "onward"))
    assert run(monkeypatch, first, *TINY, *JOINT, *few) == 0
    stages = ("stage_one", "joint")
    files = [f"{stage}.file='{first / stage / 'checkpoint.safetensors'}'" for stage in stages]

    assert run(monkeypatch, again, *TINY, *JOINT, *few, *files) == 0
    assert not (again / "stage_one").exists()
    assert numbers(again) == numbers(first)
    went_on = ("joint.start=3", "vae.dropout=0.3")
    assert run(monkeypatch, onward, *TINY, *JOINT, *few, *files, *went_on) == 0
    assert numbers(onward)["gaussian"] == numbers(again)["gaussian"]
    assert numbers(onward)["joint"] != numbers(again)["joint"]
    assert load_stage(onward / "joint" / "checkpoint.safetensors").prior is not None
    capsys.readouterr()

    wrong = tmp_path / "wrong"
    swapped = [
        f"{stage}.file={file.partition('=')[2]}"
        for stage, file in zip(("joint", "stage_one"), files, strict=True)
    ]
    for values, culprit in (
        ([swapped[1]], "of a joint stage"),
        ([files[0], swapped[0]], "of a stage one"),
        ([files[1]], "stage_one.file"),
        (["stage_one.start=3"], "'start' needs a 'file'"),
        ([*files, "joint.start=6"], "less than 'steps'"),
        ([*files, "model.hidden=24"], "hidden=16"),
        ([*files, "vae.channels=3"], "channels=2"),
    ):
        assert run(monkeypatch, wrong, *TINY, *JOINT, *values) == 2
        error = capsys.readouterr().err
        assert culprit in error
        assert len(error.strip().splitlines()) == 1
        assert not wrong.exists(), "nothing half-written"


@pytest.mark.usefixtures("made_up")
def test_scores_are_there_before_the_prior_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run stopped in stage two has told what it knows."""

    def stopped(*_: object) -> None:
        raise AemError("stopped")

    monkeypatch.setattr("aem.paper.vae.run.Experiment.stage_two", stopped)
    assert run(monkeypatch, tmp_path / "run", *TINY, *JOINT) == 2
    assert set(numbers(tmp_path / "run")) == {"gaussian", "joint"}
    assert "trained jointly" in (tmp_path / "run" / "table.md").read_text()


@pytest.mark.usefixtures("made_up")
def test_a_folder_of_other_data_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checkpoints know how they were trained, not on what."""
    out = tmp_path / "out"
    assert run(monkeypatch, out, *TINY) == 0
    changes = ("data.train_images=20", "augment.shift=0.1", "prior.draws=3", "prior.resample=2")
    for value in changes:
        capsys.readouterr()
        assert run(monkeypatch, out, *TINY, value) == 2
        key, _, asked = value.partition("=")
        error = capsys.readouterr().err
        assert f"was made with {key} = " in error
        assert f"asks for {asked}" in error


@pytest.mark.usefixtures("made_up")
def test_after_a_joint_stage_the_gaussian_row_is_stage_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoder and decoder trained with a learnt prior say nothing about the Gaussian."""
    alone, joint = tmp_path / "alone", tmp_path / "joint"
    few = [f"evaluation.{name}_images=0" for name in ("quadrature", "importance", "kde")]
    assert run(monkeypatch, alone, *TINY, *few) == 0
    assert run(monkeypatch, joint, *TINY, *few, *JOINT) == 0
    assert numbers(alone)["gaussian"] == numbers(joint)["gaussian"]
    assert numbers(alone)["proposal"] != numbers(joint)["proposal"]


@pytest.mark.parametrize(
    ("value", "culprit"),
    [
        ("evaluation.seconds=-1.0", "seconds"),
        ("stage_one.stepz=3", "stage_one.stepz"),
        ("stage_one.steps=0", "steps"),
        ("vae.latents=0", "latents"),
        ("vae.dropout=1.5", "dropout"),
        ("joint.free_bits=0.1", "free_bits"),
        ("evaluation.kde_images=20000", "kde_images"),
        ("evaluation.tolerance=0.0", "tolerance"),
        ("stage_one.device=abacus", "abacus"),
    ],
)
def test_bad_settings_are_one_sentence(
    value: str,
    culprit: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, tmp_path / "out", value) == 2
    error = capsys.readouterr().err
    assert culprit in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir()), "nothing half-written"


def test_missing_images_are_told_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AEM_DATA", str(tmp_path))
    assert run(monkeypatch, tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "mnist/train-images-idx3-ubyte.gz" in error
    assert registry.find("mnist").how_to_get in error


@pytest.mark.parametrize("preset", ["fast", "paper", "best"])
def test_presets_are_valid(preset: str) -> None:
    config = vae_experiment(preset)
    assert config.vae.latents == 32
    assert config.evaluation.samples == 50
    if preset == "paper":  # section 5.4, the appendix, and the VAE column of table 3
        assert (config.vae.channels, config.stage_one.beta, config.joint.steps) == (16, 0.9, 0)
        assert (config.model.hidden, config.model.dropout) == (512, 0.5)
        assert (config.model.energy_hidden, config.model.energy_dropout) == (128, 0.5)
        assert (config.model.components, config.model.gamma) == (20, 64)
        assert (config.train.steps, config.train.batch_size) == (100_000, 256)
        assert (config.train.nodes, config.train.learning_rate) == (20, 5e-4)
        assert (config.model.energy, config.model.frequencies) == ("literal", 0)
        assert config.evaluation.importance_samples == 1_000


def test_images_that_are_not_mnists_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of the right form and size with other pixels."""
    for prefix, count in (("train", 60_000), ("t10k", 10_000)):
        for kind, sides in (("images-idx3", (28, 28)), ("labels-idx1", ())):
            shape = (count, *sides)
            head = struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape)
            path = tmp_path / "mnist" / f"{prefix}-{kind}-ubyte.gz"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(head + bytes(math.prod(shape)), 1))
    monkeypatch.setenv("AEM_DATA", str(tmp_path))
    assert run(monkeypatch, tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "train-images-idx3-ubyte.gz is not the file of MNIST" in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("head", [b"\0\0\x09\x03", b"\0\0\x08\x03\0\0"])
def test_damaged_images_are_one_sentence(
    head: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong magic number, and a file that ends too soon."""
    for file in registry.find("mnist").sources[0].files:
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(head))
    monkeypatch.setenv("AEM_DATA", str(tmp_path))
    assert run(monkeypatch, tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "train-images-idx3-ubyte.gz" in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.data
def test_mnist_is_split_as_told(real_data: Callable[[str], Path]) -> None:
    real_data("mnist")
    images = load_images(DataConfig(train_images=100, validation_images=50))
    everything = load_images(DataConfig())
    assert [len(s) for s in (images.train, images.validation, images.test)] == [100, 50, 10_000]
    assert [len(s) for s in (everything.train, everything.validation)] == [50_000, 10_000]
    assert torch.equal(images.validation, everything.validation[-50:])


@pytest.mark.data
def test_five_hundred_images_within_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_data: Callable[[str], Path]
) -> None:
    real_data("mnist")
    started = time.monotonic()
    few = (
        "data.train_images=500",
        "data.validation_images=50",
        "stage_one.steps=30",
        "stage_one.batch_size=16",
        "stage_one.validate_every=30",
        "train.steps=30",
        "train.batch_size=32",
        "train.validate_every=30",
        "prior.draws=2",
        "evaluation.images=10",
        "evaluation.importance_images=1",
        "evaluation.importance_samples=50",
        "evaluation.kde_images=1",
        "evaluation.kde_samples=50",
        "evaluation.kde_fit_images=5",
        "evaluation.quadrature_images=1",
    )
    assert run(monkeypatch, tmp_path / "out", *few) == 0
    assert numbers(tmp_path / "out")["gaussian"] > -400  # a coin for every pixel is −543
    assert time.monotonic() - started < 60
