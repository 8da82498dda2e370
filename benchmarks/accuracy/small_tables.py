"""Compare the preset `best` with three other methods on the same splits of a small table.

Run `python -m benchmarks.accuracy.small_tables gas-10k --ours runs/gas-10k`. Our model is trained
and scored in the folder, or read from it if `aem reproduce gas-10k --preset best --out
runs/gas-10k` wrote it; the other methods (`rivals.py`) are fitted each time. All choices are made
on validation rows. Writes results/small_tables/<table>.json.
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from aem.base.devices import choose_device
from aem.base.display import ProgressDisplay
from aem.base.files import finite, write_json
from aem.base.provenance import provenance
from aem.data.splits import TableSplits
from aem.errors import AemError
from aem.evaluation.side_by_side import summarise
from aem.paper.tables.config import SMALL_TABLES, table_experiment
from aem.paper.tables.run import load_splits, run_table
from benchmarks.accuracy.rivals import LogProb, gaussian_mixture, kernel_density, spline_flow
from benchmarks.places import ROOT


def described(log_prob: LogProb, splits: TableSplits) -> dict[str, Any]:
    """Return the mean of validation rows and the summary of test rows."""
    test = summarise(torch.from_numpy(log_prob(splits.test)))
    return {
        "validation_log_prob": float(log_prob(splits.validation).mean()),
        **{f"test_{key}": value for key, value in asdict(test).items()},
    }


def ours(name: str, folder: Path, settings: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return our metrics, and their summary in the form of the other methods."""
    with ProgressDisplay() as progress:
        run = run_table(
            table_experiment(name, "best", None, settings), "best", folder, report=progress
        )
    metrics = run.metrics
    found = metrics["test"]["quadrature"]
    if found["rows"] < metrics["test"]["rows"]:
        raise AemError(
            f"{found['rows']:,} of {metrics['test']['rows']:,} test rows are scored: run again"
        )
    kept = ("mean", "two_se", "median", "worst", "worst_row", "impossible", "rows", "error")
    return metrics, {
        "validation_log_prob": metrics["validation"]["quadrature"]["mean"],
        "validation_rows": metrics["validation"]["quadrature"]["rows"],
        **{f"test_{key}": found.get(key) for key in kept},
        "test_proposal_mean": metrics["test"]["proposal"]["mean"],
        "steps": metrics["steps"],
        "seconds": metrics["seconds"],
        "device": metrics["training"][0]["device"],
        "settings": metrics["config"],
    }


def main() -> None:
    """Measure four models and write one file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", choices=SMALL_TABLES)
    parser.add_argument("--ours", type=Path, required=True, help="folder of our run")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    metrics, our_record = ours(arguments.table, arguments.ours, arguments.settings)
    config = table_experiment(arguments.table, "best", None, arguments.settings)
    splits = load_splits(config.task)
    models: dict[str, Any] = {"aem": our_record}
    for name, fit in (
        ("nsf", spline_flow),
        ("gaussian_mixture", gaussian_mixture),
        ("kde", kernel_density),
    ):
        started = time.monotonic()
        log_prob, chosen = fit(splits)
        models[name] = {
            **described(log_prob, splits),
            "chosen": chosen,
            "seconds": round(time.monotonic() - started, 1),
        }
        print(f"{name}: test {models[name]['test_mean']:.4f}, {chosen}", flush=True)
    record = {
        "task": arguments.table,
        "preset": "best",
        **provenance(config, config.train.seed, choose_device(config.train.device)),
        "rows": metrics["rows"],
        "columns": len(splits.columns),
        "models": models,
    }
    out = arguments.out or ROOT / "results" / "small_tables" / f"{arguments.table}.json"
    write_json(out, finite(record))
    print(f"aem: test {our_record['test_mean']:.4f}; wrote {out}")


if __name__ == "__main__":
    main()
