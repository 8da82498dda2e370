"""Files that an earlier version of the library wrote, and what it answered about them.

    python -m tests.support.kept_files tests/kept/VERSION

writes small models of every kind, runs stopped half-way, and the answers of the code that wrote them
to a new folder. `tests/test_kept_files.py` asks the present code for the same answers. A folder is
never written again: a later version of the library adds one of its own.
"""

import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

import aem.paper.plane.run as plane_runs
from aem import AEM, AEMDensity, AEMOutlierDetector, Quadrature, TableModel
from aem.data import registry
from aem.errors import Interrupted
from aem.model.files import load_model, save_model
from aem.model.transforms.base import Chain
from aem.model.transforms.normal_scores import heavy_tailed
from aem.model.transforms.symmetry import Symmetry
from aem.paper.plane.config import ExperimentConfig, TaskConfig
from aem.paper.tables.config import TableConfig, TableTask
from aem.paper.tables.members import train_member
from aem.paper.vae.config import NetworkConfig, StageConfig
from aem.paper.vae.files import load_vae, save_vae
from aem.paper.vae.images import Images
from aem.paper.vae.networks import ConvolutionalVae
from aem.paper.vae.stages.latent import LatentModel
from aem.paper.vae.stages.training import train_stage
from aem.tables.ensemble import TableEnsemble
from aem.tables.files import load_table
from aem.tables.queries.explain import explain
from aem.training import fit, steps
from aem.vae import fit_prior, load_prior, save_prior
from tests.support.short_runs import SHORT, TINY, TRAIN, VALIDATION, ring
from tests.support.tables import NAMES, sizes

Array = NDArray[np.float64]
Answers = dict[str, Array]

FORMS = {  # of models in the plane
    "relative": TINY,
    "literal": replace(
        TINY, energy="literal", energy_activation="tanh", proposal="uniform",
        bounds=((-80.0, 90.0), (-4.0, 4.0)),
    ),
    "whitened": replace(TINY, whiten=True, fourier_past=False),
    "transformer": replace(TINY, network="transformer", blocks=2),
}  # fmt: skip
STOPPED_AT = 13
STEERED = ("MKL_", "OPENBLAS_", "ATEN_")  # variables that choose instructions
STAGE = StageConfig(
    steps=20, batch_size=8, validate_every=5, averaging=0.5, clip=5.0, checkpoint_seconds=0.0,
    device="cpu",
)  # fmt: skip
NETWORK = NetworkConfig(latents=3, channels=2)
EARLIER = replace(SHORT, levelling=0.0)  # which version 0.1 did not have
PLANE_RUN = ExperimentConfig(
    TaskConfig(name="spirals", train_rows=200, validation_rows=40, test_rows=20), TINY, EARLIER
)
TABLE_RUN = TableConfig(
    task=TableTask("gas-10k", train_rows=200, validation_rows=40, test_rows=20),
    model=TINY,
    train=EARLIER,
)


def machine() -> str:
    """What decides the last bits of a product: they are promised on one machine alone."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    fields = dict(line.replace("\t", "").split(":", 1) for line in lines if ":" in line)
    named = ("vendor_id", "cpu family", "model", "model name", "stepping")
    processor = " ".join(fields.get(name, "").strip() for name in named)
    capability = torch.backends.cpu.get_cpu_capability()
    steered = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(STEERED)]
    versions = f"torch {torch.__version__} numpy {np.__version__} scipy {scipy.__version__}"
    return " ".join((platform.machine(), processor, capability, versions, *steered))


def blobs(count: int, seed: int) -> Tensor:
    """Grey images of one soft spot each."""
    generator = torch.Generator().manual_seed(seed)
    centres = 8 + 12 * torch.rand(count, 2, 1, 1, generator=generator)
    row, column = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    squared = (row - centres[:, 0]).square() + (column - centres[:, 1]).square()
    return (255 * torch.exp(-squared / 18)).to(torch.uint8)


@contextmanager
def stopping_at(step: int) -> Iterator[None]:
    """Stop a training as a user does."""
    original = steps.EagerStep.__call__

    def stop(self: steps.EagerStep, number: int, indices: Tensor) -> Tensor:
        if number == step:
            raise KeyboardInterrupt
        return original(self, number, indices)

    with mock.patch.object(steps.EagerStep, "__call__", stop), suppress(Interrupted):
        yield


# --- writing -----------------------------------------------------------------------------------


def write_models(folder: Path) -> None:
    """Model files of every kind."""
    for name, config in FORMS.items():
        torch.manual_seed(5)
        model = AEM.for_data(config, TRAIN, columns=("east", "north"))
        fit(model, TRAIN, VALIDATION, replace(SHORT, learning_rate=5e-3), quiet=True)
        save_model(model, folder / f"plane-{name}.safetensors", note="a ring")
    context = TRAIN[:, :1] ** 2
    torch.manual_seed(5)
    model = AEM.for_data(TINY, TRAIN, context)
    held_out = VALIDATION[:, :1] ** 2
    fit(model, TRAIN, VALIDATION, SHORT, context=context, validation_context=held_out, quiet=True)
    save_model(model, folder / "plane-context.safetensors")
    few: dict[str, Any] = {"hidden": 12, "components": 2, "frequencies": 2}
    AEMDensity(steps=30, **few).fit(_frame(sizes(2400, 0))).save(folder / "table.aem")
    AEMDensity().fit(_frame(sizes(150, 0))).save(folder / "small.aem")
    detector = AEMOutlierDetector(contamination=0.05, components=2)
    detector.fit(_frame(sizes(300, 1))).save(folder / "detector.aem")
    write_ensemble(folder / "ensemble.safetensors")
    torch.manual_seed(6)
    vae = ConvolutionalVae(NETWORK)
    train_stage(LatentModel(vae, None), pictures(), STAGE, quiet=True)
    save_vae(vae, folder / "vae.safetensors", note="blobs")
    x = (blobs(60, 3)[:, None] > 127).float()
    short = replace(SHORT, steps=8)
    prior = fit_prior(vae.encode(x[:40]).sample, vae.encode(x[40:]).sample, TINY, short, quiet=True)
    save_prior(prior, vae, folder / "prior.safetensors")


def _frame(rows: Array) -> Any:
    import pandas as pd

    return pd.DataFrame(rows, columns=list(NAMES))


def write_ensemble(path: Path) -> None:
    """Three column orders, one of them under a symmetry, one with a normal-scores transform."""
    rows, columns = sizes(200, 2)[:, 1:3], NAMES[1:3]
    members: list[TableModel] = []
    for order, treated in (((0, 1), False), ((1, 0), True)):
        names = [columns[i] for i in order]
        own = rows[:, list(order)]
        transform = Chain(heavy_tailed(own) if treated else ())
        assert bool(transform.parts) == treated
        read = transform.forward(torch.from_numpy(own)).numpy()
        torch.manual_seed(7)
        model = AEM.for_data(TINY, read, columns=names)
        fit(model, read, read[:50], SHORT, quiet=True)
        members.append(TableModel(model, transform).in_order(columns))
    members.append(members[0].behind(Symmetry(((0, 1), (-1, 0)))))
    TableEnsemble(members, {"note": "orders"}).save(path)


def pictures() -> Images:
    return Images(blobs(40, 0), blobs(12, 1), blobs(64, 2))


def data_root(folder: Path) -> Path:
    """gas-10k made of noise."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(8, 8))
    (folder / "gas").mkdir(parents=True)
    train, valid, test = ((rng.normal(size=(10_000, 8)) @ mixing).astype("f4") for _ in range(3))
    file = folder / "gas" / "gas_subset.npz"
    np.savez(file, train=train, valid=valid, test=test, mu=np.zeros(8), sd=np.ones(8))
    return folder


def write_stopped_runs(folder: Path) -> None:
    """Runs that a user stopped: one in the plane, one on a table, one of an autoencoder's stage."""
    for name, go in RUNS.items():
        with tempfile.TemporaryDirectory() as scratch:
            place = folder / name
            with stopping_at(STOPPED_AT):
                go(place, Path(scratch))
            shutil.rmtree(place / "tensorboard", ignore_errors=True)
            assert (place / "checkpoint.safetensors").exists()


# --- asking ------------------------------------------------------------------------------------


def go_in_the_plane(folder: Path, scratch: Path) -> Answers:
    samples, plane_runs.PICTURE_SAMPLES["cpu"] = plane_runs.PICTURE_SAMPLES["cpu"], 100
    try:
        run = plane_runs.run_plane(PLANE_RUN, "fast", folder, quiet=True)
    finally:
        plane_runs.PICTURE_SAMPLES["cpu"] = samples
    return {"weights": weights(run.model), "score": np.array([run.metrics["test_log_prob"]])}


def go_on_a_table(folder: Path, scratch: Path) -> Answers:
    splits = registry.load("gas-10k", data_root(scratch))
    cut = replace(
        splits, train=splits.train[:200], validation=splits.validation[:40], test=splits.test[:20]
    )
    order = tuple(range(8))
    trained = train_member(TABLE_RUN, "fast", 0, order, cut, folder, quiet=True)
    return {"weights": weights(trained.member.model)}


def go_through_a_stage(folder: Path, scratch: Path) -> Answers:
    torch.manual_seed(6)
    model = LatentModel(ConvolutionalVae(NETWORK), None)
    train_stage(model, pictures(), STAGE, folder=folder, quiet=True)
    return {"weights": weights(model)}


RUNS: dict[str, Callable[[Path, Path], Answers]] = {
    "stopped-plane": go_in_the_plane,
    "stopped-table": go_on_a_table,
    "stopped-stage": go_through_a_stage,
}


def weights(model: torch.nn.Module) -> Array:
    """All numbers of a model in one row; 0.1 had those of the standardisation before all others."""
    state = model.state_dict()
    names = sorted(state, key=lambda name: not name.startswith("standardisation."))
    values = [state[name].double().reshape(-1) for name in names]
    return np.asarray(torch.cat(values).numpy())


def about_plane(path: Path, context: Array | None = None) -> Answers:
    model, rows = load_model(path), torch.from_numpy(ring(7, 9))
    given = None if context is None else torch.from_numpy(context)
    log_prob, error = model(given).log_prob_and_error(rows)
    torch.manual_seed(3)
    drawn = model(given).sample((5,) if given is None else ())
    answers = {"log_prob": log_prob, "error": error, "drawn": drawn, "weights": weights(model)}
    if given is None:
        second = model().conditionals(rows)[1]
        answers["cdf"] = second.cdf(torch.linspace(-2, 2, 5))
    return {name: np.asarray(values, dtype=np.float64) for name, values in answers.items()}


def about_table(path: Path) -> Answers:
    model, rows = TableModel.load(path), sizes(6, 9)
    scores = model.score(rows)
    explained = explain(model, rows)
    return {
        "log_density": scores.log_density,
        "error": scores.error,
        "drawn": model.sample(5, seed=3),
        "surprise": explained.surprise,
        "median": explained.median,
    }


def about_ensemble(path: Path) -> Answers:
    """To the tolerance that 0.1 scored ensembles to, and draws in the single precision it had."""
    ensemble, rows = load_table(path), sizes(6, 9)[:, 1:3]
    scores = ensemble.score(rows, tolerance=Quadrature.tolerance)
    torch.manual_seed(3)
    drawn = ensemble.sample(5).astype(np.float32).astype(np.float64)
    return {"log_prob": scores.total, "error": scores.error, "drawn": drawn}


def about_vae(folder: Path) -> Answers:
    vae = load_vae(folder / "vae.safetensors")
    prior = load_prior(folder / "prior.safetensors", vae)
    x = (blobs(4, 9)[:, None] > 127).float()
    with torch.no_grad():
        posterior = vae.encode(x)
        logits = vae.logits(posterior.mean)
        log_prob = prior().log_prob(posterior.mean)
    return {
        "means": posterior.mean.double().numpy(),
        "logits": logits.double().numpy(),
        "log_prob": log_prob.double().numpy(),
    }


def about_models(folder: Path) -> Answers:
    """What the present code says about the models in a folder."""
    found: dict[str, Answers] = {
        f"plane-{name}": about_plane(folder / f"plane-{name}.safetensors") for name in FORMS
    }
    found["plane-context"] = about_plane(
        folder / "plane-context.safetensors", np.linspace(0, 9, 7)[:, None]
    )
    for name in ("table", "small", "detector"):
        found[name] = about_table(folder / f"{name}.aem")
    found["ensemble"] = about_ensemble(folder / "ensemble.safetensors")
    found["vae"] = about_vae(folder)
    return flat(found)


def about_stopped_run(name: str, folder: Path) -> Answers:
    """How a stopped run ends when it goes on, in a copy of its folder."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "run"
        shutil.copytree(folder / name, place)
        return flat({name: RUNS[name](place, Path(scratch))})


def flat(found: dict[str, Answers]) -> Answers:
    return {f"{name}/{what}": x for name, answers in found.items() for what, x in answers.items()}


def main() -> None:
    """Write a folder of files, and the answers about them."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    if folder.exists():
        sys.exit(f"{folder} exists; a later version of the library adds a folder of its own")
    folder.mkdir(parents=True)
    warnings.simplefilter("ignore")
    write_models(folder)
    write_stopped_runs(folder)
    answers = about_models(folder)
    for name in RUNS:
        answers |= about_stopped_run(name, folder)
    content: dict[str, Any] = {"machine": np.array(machine()), **answers}
    np.savez_compressed(folder / "answers.npz", **content)
    print(f"{len(answers)} answers, {machine()}")


if __name__ == "__main__":
    main()
