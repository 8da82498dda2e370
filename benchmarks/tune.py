"""Try settings on a table and record what each gives on validation rows; test rows are not looked at.

Run `python benchmarks/tune.py gas-10k --try "model.dropout=0.2 train.steps=2000" --try "…"`: each
--try is a list of settings laid over the preset. Trials are added to
results/experiments/<table>.json; one that is there already is not run again.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from aem.data.splits import TableSplits
from aem.ensemble import Member, column_orders, mixture_log_prob
from aem.io import write_json
from aem.provenance import provenance
from aem.tabular.config import EvaluateConfig, TableConfig, table_experiment
from aem.tabular.members import train_member
from aem.tabular.run import load_table
from aem.tabular.scorer import Scorer
from aem.training.loop import choose_device

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = 200  # draws a conditional in the score of a mixture: rough, and the same for all trials


def mixture_score(members: list[Member], splits: TableSplits, rows: int) -> float:
    """Mean validation log density of the mixture of some members, by importance sampling."""
    settings = EvaluateConfig(importance_samples=SAMPLES)
    x = torch.from_numpy(splits.validation[:rows]).to(members[0].model.shift.device)
    parts = [
        torch.cat(
            [Scorer([m], settings).importance(some, first)["log_prob"] for first, some in blocks]
        )
        for m in members
        for blocks in [list(enumerate(x.split(256)))]
    ]
    return float(mixture_log_prob(torch.stack(parts)).mean())


def attempt(config: TableConfig, preset: str, splits: TableSplits) -> dict[str, Any]:
    """Train all members without leaving files, and score them."""
    started = time.monotonic()
    count = config.ensemble.members
    orders = column_orders(len(splits.columns), count, config.train.seed)
    trained = [
        train_member(config, preset, place, order, splits, None, quiet=True)
        for place, order in enumerate(orders)
    ]
    best = [t.training["best_validation_log_prob"] for t in trained]
    steps = [t.training["best_step"] for t in trained]
    history = trained[0].training["history"]
    record: dict[str, Any] = {
        "validation_log_prob": sum(best) / count,
        "validation_proposal_log_prob": next(
            h["validation_proposal_log_prob"] for h in history if h["step"] == steps[0]
        ),
        "best_steps": steps,
        "stopped_at": [t.training["steps"] for t in trained],
        "curve": [[h["step"], round(h["validation_log_prob"], 4)] for h in history],
    }
    if count > 1:
        record["mixture_validation_log_prob"] = mixture_score(
            [t.member for t in trained], splits, 2_000
        )
    return {**record, "seconds": round(time.monotonic() - started, 1)}


def main() -> None:
    """Run the trials that are not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table")
    parser.add_argument("--preset", default="best")
    parser.add_argument("--try", dest="trials", action="append", default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = arguments.out or ROOT / "results" / "experiments" / f"{arguments.table}.json"
    trials = json.loads(out.read_text())["trials"] if out.is_file() else []
    for text in arguments.trials:
        settings = text.split()
        config = table_experiment(arguments.table, arguments.preset, None, settings)
        if any(t["settings"] == settings and t["preset"] == arguments.preset for t in trials):
            continue
        print(f"{arguments.table}: {text}", flush=True)
        splits = load_table(config.task)
        found = attempt(config, arguments.preset, splits)
        origin = provenance(config, config.train.seed, choose_device(config.train.device))
        trials.append({"settings": settings, "preset": arguments.preset, **found, **origin})
        write_json(out, {"task": arguments.table, "trials": trials})
        shown = {k: v for k, v in found.items() if k != "curve"}
        print(f"  {shown}\n  {found['curve']}", flush=True)


if __name__ == "__main__":
    main()
