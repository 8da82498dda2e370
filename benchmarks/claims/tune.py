"""Try settings on a table and record their validation scores; test rows are not read.

Run `python -m benchmarks.claims.tune gas-10k --try "model.dropout=0.2 train.steps=2000" --try "…"`:
each --try is a list of settings that replace those of the preset. With --seconds a coordinate
search follows: starting from the best trial, one setting is moved up or down its ladder, and the
move is kept if the validation score improves. Trials are added to results/experiments/<table>.json;
one that is there is not run again.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch

from aem.base.devices import choose_device
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.base.settings import to_mapping
from aem.data.splits import TableSplits
from aem.errors import AemError
from aem.paper.tables.config import TableConfig, table_experiment
from aem.paper.tables.members import train_member
from aem.paper.tables.run import load_splits
from aem.paper.tables.symmetries import views
from aem.tables.ensemble import column_orders
from aem.tables.model import TableModel
from aem.tables.scores import TableScores
from benchmarks.places import ROOT

# The values that the search may try, with the most important settings first.
LADDERS: dict[str, tuple[float, ...]] = {
    "model.dropout": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    "train.steps": (750, 1500, 3000, 6000, 12000),
    "model.frequencies": (0, 2, 4, 8, 16),
    "train.learning_rate": (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3),
    "model.hidden": (128, 256, 512, 1024),
    "train.weight_decay": (0.0, 0.01, 0.1, 1.0),
    "model.energy_dropout": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    "model.components": (5, 10, 20, 40),
    "model.blocks": (1, 2, 4),
    "train.averaging": (0.99, 0.997, 0.999),
    "train.batch_size": (128, 256, 512, 1024),
    "model.energy_hidden": (32, 64, 128, 256),
}
SAMPLES = 200  # draws a conditional in the score of a mixture: rough, and the same for all trials


def mixture_score(members: list[TableModel], splits: TableSplits, rows: int) -> float:
    """Return the mean validation log density of a mixture of members, by importance sampling."""
    scores = TableScores(tuple(members))
    x = torch.from_numpy(splits.validation[:rows]).to(scores.device)
    parts = [scores.importance(some, SAMPLES, first) for first, some in enumerate(x.split(256))]
    return float(torch.cat([part.log_prob for part in parts]).mean())


def attempt(config: TableConfig, preset: str, splits: TableSplits) -> dict[str, Any]:
    """Train all members without writing files, and score them."""
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
    scored = views([t.member for t in trained], splits, config.ensemble.symmetries)
    if len(scored) > 1:
        record["mixture_validation_log_prob"] = mixture_score(scored, splits, 2_000)
    return {**record, "seconds": round(time.monotonic() - started, 1)}


class Trials:
    """All trials of a table, in their file."""

    def __init__(self, table: str, preset: str, base: list[str], out: Path) -> None:
        self.table, self.preset, self.base, self.out = table, preset, base, out
        self.trials = json.loads(out.read_text())["trials"] if out.is_file() else []

    def score(self, settings: list[str]) -> float:
        """Return the validation score of some settings, from the file or from a new run."""
        config = table_experiment(self.table, self.preset, None, [*self.base, *settings])
        plain = json.loads(json.dumps(to_mapping(config)))
        for trial in self.trials:
            if trial["config"] == plain:
                return value_of(trial)
        print(f"{self.table}: {' '.join(settings)}", flush=True)
        try:
            found = attempt(config, self.preset, load_splits(config.task))
        except AemError as error:  # a run that explodes is a result as well
            found = {"failed": str(error)}
        origin = provenance(config, config.train.seed, choose_device(config.train.device))
        trial = {"settings": [*self.base, *settings], "preset": self.preset, **found, **origin}
        self.trials.append({**trial, "config": plain})
        write_json(self.out, {"task": self.table, "trials": self.trials})
        print(f"  { {k: v for k, v in found.items() if k != 'curve'} }", flush=True)
        return value_of(trial)

    def walk(self, here: dict[str, float], seconds: float) -> None:
        """Move one setting after the other up or down its ladder while there is time."""
        started = time.monotonic()
        best = self.score(as_settings(here))
        improved = True
        while improved:
            improved = False
            for key, rungs in LADDERS.items():
                at = min(range(len(rungs)), key=lambda i: abs(rungs[i] - here[key]))
                for to in (at + 1, at - 1):
                    if not 0 <= to < len(rungs):
                        continue
                    if time.monotonic() - started > seconds:
                        return self._say(here, best)
                    score = self.score(as_settings({**here, key: rungs[to]}))
                    if score > best:
                        here, best, improved = {**here, key: rungs[to]}, score, True
                        break
        return self._say(here, best)

    def _say(self, here: dict[str, float], best: float) -> None:
        print(f"{self.table}: {best:.4f} with {' '.join(as_settings(here))}", flush=True)


def value_of(trial: dict[str, Any]) -> float:
    """Return the score by which trials are compared."""
    value = trial.get("mixture_validation_log_prob", trial.get("validation_log_prob"))
    return -math.inf if value is None else float(value)


def starting_point(config: TableConfig) -> dict[str, float]:
    """Return the values of the searched settings in a configuration."""
    plain = to_mapping(config)
    return {key: plain[key.split(".")[0]][key.split(".")[1]] for key in LADDERS}


def as_settings(values: dict[str, float]) -> list[str]:
    """Write settings as on the command line."""
    return [f"{key}={value}" for key, value in values.items()]


def main() -> None:
    """Run the trials named on the command line, and then the search."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table")
    parser.add_argument("--preset", default="best")
    parser.add_argument("--base", default="", help="settings of all trials")
    parser.add_argument("--try", dest="trials", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=0, help="time to walk; 0: do not")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = arguments.out or ROOT / "results" / "experiments" / f"{arguments.table}.json"
    base = arguments.base.split()
    trials = Trials(arguments.table, arguments.preset, base, out)
    for text in arguments.trials:
        trials.score(text.split())
    if arguments.seconds:
        config = table_experiment(arguments.table, arguments.preset, None, base)
        trials.walk(starting_point(config), arguments.seconds)


if __name__ == "__main__":
    main()
