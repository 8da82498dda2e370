"""Do energies pay, and when should they be trained? Three ways to train a model, at equal time.

Run `python -m benchmarks.accuracy.energies --seconds 8` on a GPU, or name some tables. Each table is
fitted with the proposal alone, with energies after half of the time, and with energies from the first
step, for the same number of seconds and with the same networks; of two learning rates each way of
training gets the one that validation rows prefer. Test rows are scored by quadrature. Differences are
paired by row and seed. Writes results/accuracy/energies.json after every model; models that are in the
file are not trained again.
"""

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from aem import AEM, ModelConfig, Quadrature, TrainConfig
from aem.base.devices import choose_device
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.base.randomness import seeded
from aem.training import fit
from benchmarks.accuracy.tables import Split, splits
from benchmarks.places import ROOT

TABLES: Final = (
    *("magic", "gas-10k", "hepmass-5k", "miniboone", "protein", "parkinsons", "housing"),
    *("diamonds", "uci-wine", "concrete"),
)
WAYS: Final = {
    "proposal": 1.0,
    "afterwards": 0.5,
    "from the start": 0.0,
}  # share of warm-up in time
OUT = ROOT / "results" / "accuracy" / "energies.json"
TIMED_STEPS = 60
MODEL: Final = ModelConfig(
    hidden=256, blocks=4, dropout=0.2, energy_hidden=128, energy_blocks=3, components=20,
    frequencies=0,
)  # fmt: skip
TRAINING: Final = TrainConfig(batch_size=512, averaging=0.995, weight_decay=0.05)
VALIDATIONS = 20


@dataclass(frozen=True)
class Study:
    """What is the same for all models.

    Parameters
    ----------
    seconds
        of training each model.
    seeds
        of networks and batches.
    learning_rates
        of which validation rows choose.
    test_rows, validation_rows
        at most so many of each.
    model
        the networks.
    train
        the training, but for what is compared.
    """

    seconds: float = 8.0
    seeds: tuple[int, ...] = (0, 1, 2)
    learning_rates: tuple[float, ...] = (1e-3, 3e-3)
    test_rows: int = 5_000
    validation_rows: int = 1_000
    model: ModelConfig = MODEL
    train: TrainConfig = TRAINING


def seconds_per_step(study: Study, split: Split, device: torch.device) -> tuple[float, float]:
    """Measure a step of the proposal alone, and one of both.

    Parameters
    ----------
    study
        networks and training.
    split
        the table.
    device
        where models are trained.
    """
    found = []
    for warmup in (TIMED_STEPS, 0):
        for _ in range(2):  # the first compiles and captures
            model = AEM.for_data(study.model, split[0])
            config = replace(
                study.train, steps=TIMED_STEPS, warmup=warmup, validate_every=TIMED_STEPS,
                device=device.type,
            )  # fmt: skip
            progress = fit(model, split[0], split[1][:100], config, quiet=True)
        found.append(progress.seconds / TIMED_STEPS)
    return found[0], found[1]


def steps_for(study: Study, share: float, each: tuple[float, float]) -> tuple[int, int]:
    """Return the steps of the warm-up, and all steps, that take the time there is.

    Parameters
    ----------
    study
        how long a training lasts.
    share
        of the time that is warm-up.
    each
        seconds of a step in the warm-up and after it.
    """
    warmup = int(share * study.seconds / each[0])
    return warmup, max(warmup + int((1 - share) * study.seconds / each[1]), 1)


def train(
    study: Study, split: Split, config: TrainConfig, seed: int
) -> tuple[float, NDArray[np.float64], dict[str, Any]]:
    """Train a model and score the test rows.

    Parameters
    ----------
    study
        the networks.
    split
        the table.
    config
        how to train.
    seed
        of networks and batches.

    Returns
    -------
    validation : float
        the best validation score.
    scores : array
        log densities of the test rows.
    record : dict
        how the training went.
    """
    rows, validation, test = split
    with seeded(seed, torch.device("cpu")):
        model = AEM.for_data(study.model, rows)
    progress = fit(
        model, rows, validation[: study.validation_rows], replace(config, seed=seed), quiet=True
    )
    if config.warmup == config.steps:
        model.flatten()
    began = time.monotonic()
    rows_scored = torch.from_numpy(test[: study.test_rows])
    found = model().scores(rows_scored, Quadrature(tolerance=1e-2))
    return progress.best_score, found.log_prob.sum(-1).cpu().numpy(), {
        "steps": progress.step,
        "warmup": config.warmup,
        "best_step": progress.best_step,
        "validation": progress.best_score,
        "seconds": round(progress.seconds, 2),
        "scoring_seconds": round(time.monotonic() - began, 2),
        "test_proposal": float(found.log_proposal.sum(-1).mean()),
        "lowest_log_z": float(found.log_z.min()),
        "below_minus_five": float((found.log_z < -5).double().mean()),
    }  # fmt: skip


def measure(study: Study, name: str, device: torch.device) -> dict[str, Any]:
    """Train all models of a table, and compare them.

    Parameters
    ----------
    study
        what is the same for all models.
    name
        the table.
    device
        where models are trained.
    """
    split = splits(name)[0]
    each = seconds_per_step(study, split, device)
    scores: dict[str, list[NDArray[np.float64]]] = {}
    ways: dict[str, Any] = {}
    for way, share in WAYS.items():
        warmup, steps = steps_for(study, share, each)
        config = replace(
            study.train, steps=steps, warmup=warmup, validate_every=max(steps // VALIDATIONS, 1),
            device=device.type,
        )  # fmt: skip
        tried = {
            rate: train(study, split, replace(config, learning_rate=rate), study.seeds[0])
            for rate in study.learning_rates
        }
        rate = max(tried, key=lambda rate: tried[rate][0])
        found = [tried[rate]]
        for seed in study.seeds[1:]:
            found.append(train(study, split, replace(config, learning_rate=rate), seed))
        scores[way] = [one[1] for one in found]
        ways[way] = {
            "learning_rate": rate,
            "rates_tried": {str(r): one[0] for r, one in tried.items()},
            "test": float(np.mean(scores[way])),
            "worst": float(np.min(scores[way])),
            "runs": [one[2] for one in found],
        }
        print(
            f"{name:12s} {way:16s} {ways[way]['test']:9.4f}  worst {ways[way]['worst']:.1f}",
            flush=True,
        )
    best = scores["from the start"]
    return {
        "rows": [len(part) for part in split],
        "columns": split[0].shape[1],
        "seconds_per_step": each,
        "ways": ways,
        "gains": {way: gain(best, scores[way]) for way in WAYS if way != "from the start"},
    }


def gain(ours: list[NDArray[np.float64]], theirs: list[NDArray[np.float64]]) -> dict[str, float]:
    """Compare scores of the same rows, seed by seed.

    Parameters
    ----------
    ours, theirs
        for each seed, the log densities of the test rows.

    Returns
    -------
    dict
        the mean difference and its standard error: over rows of the mean of the seeds, and over seeds.
    """
    differences = np.stack(ours) - np.stack(theirs)
    by_row, by_seed = differences.mean(0), differences.mean(1)
    return {
        "mean": float(differences.mean()),
        "standard_error_of_rows": float(by_row.std(ddof=1) / np.sqrt(len(by_row))),
        "standard_error_of_seeds": float(by_seed.std(ddof=1) / np.sqrt(len(by_seed)))
        if len(by_seed) > 1
        else float("nan"),
    }


def main() -> None:
    """Measure the tables that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; default: all")
    parser.add_argument("--seconds", type=float, default=Study.seconds, help="per model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    unknown = set(arguments.tables) - set(TABLES)
    if unknown:
        parser.error(f"unknown table {', '.join(sorted(unknown))}; known: {', '.join(TABLES)}")
    study, device = Study(seconds=arguments.seconds), choose_device(arguments.device)
    record: dict[str, Any] = {"task": "energies", "tables": {}}
    if arguments.out.is_file():
        record = json.loads(arguments.out.read_text(encoding="utf-8"))
    for name in arguments.tables or TABLES:
        if name in record["tables"]:
            continue
        began = time.monotonic()
        found = measure(study, name, device)
        origin = provenance(study, study.seeds[0], device)
        record["tables"][name] = {
            **found,
            **origin,
            "study_seconds": round(time.monotonic() - began, 1),
        }
        write_json(arguments.out, record)


if __name__ == "__main__":
    main()
