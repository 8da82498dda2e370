"""Check the preparation of the data by the scores of a Gaussian.

Run `python -m benchmarks.claims.gaussian`. A Gaussian with full covariance has nothing to tune, so
on data prepared as by MAF its score must be the published one. On BSDS300 it is also fitted with
other choices of the validation pictures.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import multivariate_normal

from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.data import registry
from aem.data.info import data_root
from aem.data.sets import bsds300
from aem.data.splits import Table
from aem.evaluation.summary import two_standard_errors


@dataclass(frozen=True)
class Study:
    """The number of splits and of patches."""

    random_splits: int = 30
    first_seed: int = 42  # of the random split that BSDS300 had first
    patches: int = 5_000  # of a picture


def gaussian_scores(train: Table, test: Table) -> np.ndarray:
    """Return log densities of test rows under the Gaussian with the moments of training rows."""
    rows = train.astype(np.float64)
    scores: np.ndarray = multivariate_normal(rows.mean(0), np.cov(rows.T)).logpdf(test)
    return scores


def splits_of_pictures(folder: Path, study: Study) -> dict[str, Any]:
    """Score test and validation patches for several choices of the validation pictures."""
    rng = np.random.default_rng(0)
    train, test = (
        [bsds300.draw_patches([picture], study.patches, rng) for picture in pictures]
        for pictures in (
            bsds300.read_pictures(folder / "train", bsds300.TRAIN_PICTURES),
            bsds300.read_pictures(folder / "test", bsds300.TEST_PICTURES),
        )
    )

    def scores(validation: Sequence[int]) -> dict[str, float]:
        rest = sorted(set(range(len(train))) - set(validation))
        rows = np.concatenate([train[i] for i in rest])
        means = {
            name: float(gaussian_scores(rows, np.concatenate(parts)).mean())
            for name, parts in (("test", test), ("validation", [train[i] for i in validation]))
        }
        print(means, flush=True)
        return means

    def random(seed: int) -> list[int]:
        order = np.random.default_rng(seed).permutation(len(train))
        return [int(i) for i in order[: bsds300.VALIDATION_PICTURES]]

    even = bsds300.validation_pictures(len(train), bsds300.VALIDATION_PICTURES)
    return {
        "even": scores(even),
        "first": scores(random(study.first_seed)),
        "random": [scores(random(seed)) for seed in range(study.random_splits)],
    }


def main() -> None:
    """Measure everything and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/experiments/gaussian.json"))
    arguments = parser.parse_args()
    started, study = time.monotonic(), Study()
    result: dict[str, Any] = {
        "task": "gaussian",
        **provenance(study, 0, torch.device("cpu")),
        "tables": {},
    }
    for name in ("power-maf", "bsds300"):
        splits = registry.load(name)
        found = gaussian_scores(splits.train, splits.test)
        record = {"test": float(found.mean()), "test_2se": two_standard_errors(found)}
        print(name, record, flush=True)
        result["tables"][name] = record
    result["splits"] = splits_of_pictures(data_root() / "bsds300" / "images", study)
    result["seconds"] = time.monotonic() - started
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
