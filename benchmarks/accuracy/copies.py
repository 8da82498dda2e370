"""Do copies of rows spoil a fit? Doubled and bootstrapped tables beside the rows themselves.

    python -m benchmarks.accuracy.copies [TABLE …]

`AEMDensity` is fitted with its defaults to the training rows of a table, to every row twice, to a
bootstrap sample, and to the distinct rows of that sample; the test rows are the same. Copies on both
sides of a validation split would make an overfitted model look best. Writes
results/accuracy/copies.json after every table; tables that are there are not fitted again.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from aem import AEMDensity
from aem.base.files import write_json
from aem.base.provenance import provenance
from benchmarks.accuracy.tables import splits
from benchmarks.places import ROOT

TABLES: Final = ("wine", "breast-cancer", "magic", "housing")
OUT = ROOT / "results" / "accuracy" / "copies.json"


@dataclass(frozen=True)
class Study:
    """What is the same for all tables.

    Parameters
    ----------
    seed
        of the fits and of the bootstrap sample.
    test_rows
        at most so many are scored.
    """

    seed: int = 0
    test_rows: int = 2_000


def measure(name: str, study: Study) -> dict[str, Any]:
    """Fit all four tables and score the same test rows.

    Parameters
    ----------
    name
        the table.
    study
        seed and number of test rows.
    """
    train, validation, test = splits(name)[0]
    rows = np.concatenate((train, validation))
    drawn = np.random.default_rng(study.seed).integers(len(rows), size=len(rows))
    tables = {
        "rows": rows,
        "doubled": np.concatenate((rows, rows)),
        "bootstrapped": rows[drawn],
        "distinct of bootstrapped": rows[np.unique(drawn)],
    }
    found: dict[str, Any] = {}
    for kind, table in tables.items():
        began = time.process_time()
        density = AEMDensity(random_state=study.seed).fit(table)
        found[kind] = {
            "rows": len(table),
            "test": float(density.score_samples(test[: study.test_rows]).mean()),
            "components": density.model_.about["mixture"]["components"],
            "processor_seconds": round(time.process_time() - began, 1),
        }
        print(f"{name:14s} {kind:26s} {found[kind]['test']:9.3f}", flush=True)
    return found


def main() -> None:
    """Measure the tables that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    study = Study()
    record: dict[str, Any] = {"task": "copies", "tables": {}}
    if arguments.out.is_file():
        record = json.loads(arguments.out.read_text(encoding="utf-8"))
    for name in arguments.tables:
        if name not in record["tables"]:
            record["tables"][name] = measure(name, study)
            record.update(provenance(study, study.seed, torch.device("cpu")))
            write_json(arguments.out, record)


if __name__ == "__main__":
    main()
