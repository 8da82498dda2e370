"""How near do models come to a density with sharp edges and separate parts, in equal time?

    python -m benchmarks.accuracy.sharp_edges [--seconds 60 250 1000] [--methods flow …]

The table (`sharp_table`) has 100,000 rows and a density that is known exactly, so that the distance of
a model from the truth, the Kullback–Leibler divergence, can be measured. An autoregressive energy
machine and zuko's neural spline flow train on one thread until they have used so many seconds of
processor time; each has two learning rates, of which validation rows choose. The other settings of the
machine were chosen among ten by their distance on 4,000 rows drawn with the seed of the test rows; the
flow had no such search. `AEMDensity` takes as long as it takes, and the flow gets that time as well.
Writes results/accuracy/sharp-edges.json after every model; what is there is not trained again.
"""

import argparse
import copy
import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

import aem
from aem import AEM, AEMDensity, ModelConfig, Quadrature, TrainConfig
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.model.mixture import fit_mixture
from aem.tables.fit.starts import anchored_model
from aem.training import fit
from aem.training.schedule import cosine
from benchmarks.accuracy.flows import descend
from benchmarks.accuracy.sharp_table import log_density, sample
from benchmarks.places import ROOT

Array = NDArray[np.float64]
Found = tuple[Array, dict[str, Any]]  # log densities of the test rows, and how the model was made

OUT = ROOT / "results" / "accuracy" / "sharp-edges.json"
TIMED_STEPS = 60
VALIDATIONS = 10
COPIES: Final = 16  # of a Gaussian, which the networks make a mixture of
MODEL: Final = ModelConfig(
    hidden=64, blocks=2, gamma=32, energy_hidden=48, energy_blocks=1, proposal="anchored",
    frequencies=8, fourier_past=False,
)  # fmt: skip
TRAINING: Final = TrainConfig(nodes=8, averaging=0.995, device="cpu")


@dataclass(frozen=True)
class Study:
    """What is the same for all models.

    Parameters
    ----------
    rows, validation_rows, test_rows
        how many of each.
    seed
        of networks and batches.
    learning_rates
        of which validation rows choose.
    batch
        rows per step.
    model
        the networks of the autoregressive energy machine.
    train
        its training.
    transforms, bins, hidden
        of the flow.
    """

    rows: int = 100_000
    validation_rows: int = 1_000
    test_rows: int = 10_000
    seed: int = 0
    learning_rates: tuple[float, ...] = (2e-3, 5e-3)
    batch: int = 256
    model: ModelConfig = MODEL
    train: TrainConfig = TRAINING
    transforms: int = 3
    bins: int = 16
    hidden: tuple[int, ...] = (64, 64)


@dataclass(frozen=True)
class Rows:
    """The rows of a study."""

    train: Array
    validation: Array
    test: Array


def machine(study: Study, rows: Rows, seconds: float) -> Found:
    """Train an autoregressive energy machine with `fit`.

    Parameters
    ----------
    study, rows
        networks, training, data.
    seconds
        of processor time, for each learning rate.
    """
    each = _seconds_per_step(study, rows)
    steps = max(int(seconds / each), VALIDATIONS)
    best: tuple[float, AEM | None, dict[str, Any]] = (-math.inf, None, {})
    for rate in study.learning_rates:
        began, model = time.process_time(), _new(study, rows)
        config = replace(
            study.train, steps=steps, batch_size=study.batch, learning_rate=rate, seed=study.seed,
            validate_every=steps // VALIDATIONS,
        )  # fmt: skip
        progress = fit(model, rows.train, rows.validation, config, quiet=True)
        how = {
            "learning_rate": rate,
            "steps": steps,
            "processor_seconds": round(time.process_time() - began, 1),
        }
        best = max(best, (progress.best_score, model, how), key=lambda one: one[0])
    _, chosen, how = best
    assert chosen is not None
    found = chosen().scores(torch.from_numpy(rows.test), Quadrature(tolerance=1e-2))
    proposal = found.log_proposal.sum(-1).numpy()
    return found.log_prob.sum(-1).numpy(), {
        **how,
        "proposal_distance": float((log_density(rows.test) - proposal).mean()),
        "lowest_log_z": float(found.log_z.min()),
    }


def _new(study: Study, rows: Rows) -> AEM:
    """Make a model that starts from copies of a Gaussian of all columns, as `AEMDensity` does."""
    z = (rows.train - rows.train.mean(0)) / rows.train.std(0)
    gaussian = fit_mixture(z, 1, float(z.shape[1]), study.seed).with_wide_component(z)
    return anchored_model(
        gaussian, study.model, rows.train, ["x1", "x2", "x3"], study.seed, copies=COPIES
    )


def _seconds_per_step(study: Study, rows: Rows) -> float:
    """Measure the processor time of a training step, without what every training does once."""

    def spent(steps: int) -> float:
        config = replace(study.train, steps=steps, batch_size=study.batch, validate_every=steps)
        model, began = _new(study, rows), time.process_time()
        fit(model, rows.train, rows.validation[:10], config, quiet=True)
        return time.process_time() - began

    spent(TIMED_STEPS)  # the first is slower
    return (spent(3 * TIMED_STEPS) - spent(TIMED_STEPS)) / (2 * TIMED_STEPS)


def flow(study: Study, rows: Rows, seconds: float) -> Found:
    """Train zuko's neural spline flow.

    Parameters
    ----------
    study, rows
        networks, training, data.
    seconds
        of processor time, for each learning rate.
    """
    import zuko

    shift, scale = rows.train.mean(0), rows.train.std(0)
    train, validation, test = (
        torch.from_numpy((part - shift) / scale).float()
        for part in (rows.train, rows.validation, rows.test)
    )
    best: tuple[float, Any, dict[str, Any]] = (-math.inf, None, {})
    for rate in study.learning_rates:
        torch.manual_seed(study.seed)
        model = zuko.flows.NSF(
            train.shape[1],
            transforms=study.transforms,
            bins=study.bins,
            hidden_features=study.hidden,
        )
        optimiser = torch.optim.Adam(model.parameters(), lr=rate)
        score, state, steps, spent = -math.inf, None, 0, 0.0
        began, next_look = time.process_time(), 1
        while spent < seconds:
            for some in torch.randperm(len(train)).split(study.batch):
                # Half a cosine over the time that there is, as for the other model over its steps.
                optimiser.param_groups[0]["lr"] = cosine(int(1e6 * spent / seconds), 10**6, rate)
                descend(model, optimiser, train[some])
                steps, spent = steps + 1, time.process_time() - began
                if spent >= next_look * seconds / VALIDATIONS:
                    next_look += 1
                    with torch.no_grad():
                        now = float(model().log_prob(validation).double().mean())
                    if now > score:
                        score, state = now, copy.deepcopy(model.state_dict())
                if spent >= seconds:
                    break
        assert state is not None
        model.load_state_dict(state)
        how = {"learning_rate": rate, "steps": steps, "processor_seconds": round(spent, 1)}
        best = max(best, (score, model, how), key=lambda one: one[0])
    _, chosen, how = best
    with torch.no_grad():
        scores = torch.cat([chosen().log_prob(some).double() for some in test.split(1000)])
    return scores.numpy() - np.log(scale).sum(), how


def automatic(study: Study, rows: Rows) -> Found:
    """Fit `AEMDensity` with its defaults, which takes validation rows of its own.

    Parameters
    ----------
    study, rows
        the seed, and data.
    """
    began = time.process_time()
    density = AEMDensity(random_state=study.seed).fit(rows.train)
    spent = time.process_time() - began
    scores = density.score_samples(rows.test)
    about = density.model_.about
    return scores, {
        "processor_seconds": round(spent, 1),
        "scoring_processor_seconds": round(time.process_time() - began - spent, 1),
        "components": about["mixture"]["components"],
        "won": about["network"]["won"],
        "start": about["network"]["start"],
    }


def distance(rows: Rows, found: Found) -> dict[str, Any]:
    """Return how far a model is from the truth, in nats per row.

    Parameters
    ----------
    rows
        the data.
    found
        what a method returned.
    """
    scores, how = found
    apart = log_density(rows.test) - scores
    return {
        "distance": float(apart.mean()),
        "standard_error": float(apart.std(ddof=1) / math.sqrt(len(apart))),
        "worst": float(scores.min()),
        **how,
    }


def main() -> None:
    """Train what is not in the record yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, nargs="*", default=[60.0, 250.0, 1000.0])
    parser.add_argument("--methods", nargs="*", default=["machine", "flow", "automatic"])
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    study = Study()
    rows = Rows(sample(study.rows, 0), sample(study.validation_rows, 1), sample(study.test_rows, 2))
    record: dict[str, Any] = {"task": "sharp edges", "models": {}}
    if arguments.out.is_file():
        record = json.loads(arguments.out.read_text(encoding="utf-8"))
    aem.set_threads(1)
    torch.set_num_threads(1)

    def keep(name: str, found: Found) -> None:
        origin = provenance(study, study.seed, torch.device("cpu"))
        record["models"][name] = {**distance(rows, found), "commit": origin["commit"]}
        record.update(origin)
        write_json(arguments.out, record)
        print(name, json.dumps(record["models"][name]), flush=True)

    known = record["models"]
    if "automatic" in arguments.methods and "automatic" not in known:
        keep("automatic", automatic(study, rows))
    contenders: Final = {"machine": machine, "flow": flow}
    for seconds in arguments.seconds:
        for name in (name for name in contenders if name in arguments.methods):
            if f"{name}, {seconds:g} s" not in known:
                keep(f"{name}, {seconds:g} s", contenders[name](study, rows, seconds))
    if "flow" in arguments.methods and "automatic" in known and "flow, as automatic" not in known:
        keep("flow, as automatic", flow(study, rows, known["automatic"]["processor_seconds"]))


if __name__ == "__main__":
    main()
