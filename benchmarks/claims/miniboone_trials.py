"""Which settings suit MINIBOONE? A list of trials, judged on validation rows; no test row is read.

Run `python -m benchmarks.claims.miniboone_trials --seconds 480` on a GPU; with `--members 6 --top 2`
the best two are then trained in six column orders each, and the mixtures are compared. A trial that
would not end in time is not begun, and one that is in the file is not run again: give the same command
once more.
Writes results/experiments/miniboone.json.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.claims.tune import Trials, value_of
from benchmarks.places import ROOT

BASE: Final = {
    "model.network": "resmade",
    "model.whiten": "true",
    "model.hidden": "512",
    "model.blocks": "4",
    "model.dropout": "0.35",
    "model.gamma": "64",
    "model.energy_hidden": "128",
    "model.energy_blocks": "4",
    "model.energy_dropout": "0.1",
    "model.components": "20",
    "model.frequencies": "0",
    "train.steps": "6_000",
    "train.batch_size": "512",
    "train.learning_rate": "1e-3",
    "train.warmup": "0",
    "train.nodes": "20",
    "train.averaging": "0.999",
    "train.weight_decay": "0.01",
    "train.validate_every": "500",
    "ensemble.members": "1",
}
# What each trial changes, the most promising first.
TRIALS: Final = {
    "base": "",
    "as published but whitened": (
        "model.dropout=0.5 model.energy_dropout=0.5 train.learning_rate=5e-4 train.weight_decay=0"
    ),
    "dropout 0.2": "model.dropout=0.2",
    "dropout 0.5, 10,000 steps": (
        "model.dropout=0.5 train.steps=10_000 train.averaging=0.9995 train.validate_every=1_000"
    ),
    "weight decay 0.3": "model.dropout=0.2 train.weight_decay=0.3",
    "wide": "model.hidden=1024 model.dropout=0.5 train.learning_rate=7e-4",
    "narrow": "model.hidden=256 model.dropout=0.1",
    "not whitened": "model.whiten=false",
    "frequencies": "model.frequencies=4 model.fourier_past=false",
    "energy dropout 0.35": "model.energy_dropout=0.35",
    "40 components": "model.components=40",
    "10 components": "model.components=10 train.nodes=40",
    "small batches": "train.batch_size=128 train.learning_rate=5e-4 train.steps=10_000",
    "transformer": (
        "model.network=transformer model.hidden=128 model.dropout=0.1 train.rise=500"
        " train.batch_size=256 train.steps=8_000"
    ),
}


def settings_of(name: str, *further: str) -> list[str]:
    """A trial's settings, as the command line has them; later ones replace earlier ones."""
    pairs = (text.split("=", 1) for text in (*TRIALS[name].split(), *further))
    return [f"{key}={value}" for key, value in {**BASE, **dict(pairs)}.items()]


class Budget:
    """Seconds for all trials; the longest so far tells how long the next may take."""

    def __init__(self, seconds: float) -> None:
        self.end, self.longest = time.monotonic() + seconds, 0.0

    def suffices(self, times: float = 1.0) -> bool:
        """Whether a trial as long as some of the longest can still end in time."""
        return time.monotonic() + times * self.longest <= self.end

    def run(self, trials: Trials, settings: list[str]) -> None:
        """Run a trial, or find it in the file."""
        began = time.monotonic()
        trials.score(settings)
        self.longest = max(self.longest, time.monotonic() - began)


def found(trials: Trials, settings: list[str]) -> dict[str, Any] | None:
    """The trial of some settings, if it has run."""
    return next((trial for trial in trials.trials if trial["settings"] == settings), None)


def table(rows: list[tuple[str, dict[str, Any]]]) -> str:
    """Trials from the best to the worst."""
    lines = [
        f"{'trial':32s} {'validation':>10s} {'proposal':>10s} {'best step':>9s} {'seconds':>7s}"
    ]
    for name, trial in sorted(rows, key=lambda row: -value_of(row[1])):
        if value_of(trial) == -math.inf:
            lines.append(f"{name:32s} {trial.get('failed', 'failed')}")
            continue
        lines.append(
            f"{name:32s} {value_of(trial):10.4f} {trial['validation_proposal_log_prob']:10.4f}"
            f" {trial['best_steps'][0]:9,d} {trial['seconds']:7.1f}"
        )
    return "\n".join(lines)


def run(out: Path, seconds: float, members: int, top: int, further: list[str]) -> str:
    """Run the trials, then the best ones in several column orders; return the table of all."""
    trials, budget = Trials("miniboone", "best", [], out), Budget(seconds)
    rows: list[tuple[str, dict[str, Any]]] = []

    def attempt(label: str, settings: list[str], times: float) -> None:
        if found(trials, settings) is None:
            if not budget.suffices(times):
                print(f"no time is left for: {label}", flush=True)
                return
            budget.run(trials, settings)
        trial = found(trials, settings)
        if trial is not None:
            rows.append((label, trial))

    for name in TRIALS:
        attempt(name, settings_of(name, *further), 1.0)
    if members > 1:
        for name, _ in sorted(rows, key=lambda row: -value_of(row[1]))[:top]:
            several = settings_of(name, *further, f"ensemble.members={members}")
            attempt(f"{name} × {members}", several, members)
    return table(rows)


def main() -> None:
    """Run what there is time for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=480.0, help="for all trials together")
    parser.add_argument("--members", type=int, default=1, help="column orders of a mixture")
    parser.add_argument("--top", type=int, default=2, help="trials that become mixtures")
    parser.add_argument("--set", dest="further", action="append", default=[], help="in all trials")
    default = ROOT / "results" / "experiments" / "miniboone.json"
    parser.add_argument("--out", type=Path, default=default)
    arguments = parser.parse_args()
    print(
        run(
            arguments.out,
            arguments.seconds,
            arguments.members,
            arguments.top,
            arguments.further,
        )
    )


if __name__ == "__main__":
    main()
