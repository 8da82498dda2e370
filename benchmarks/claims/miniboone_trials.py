"""Trials of settings for MINIBOONE, compared on validation rows; no test row is read.

Run `python -m benchmarks.claims.miniboone_trials --seconds 480` on a GPU; with `--members 6 --top
2` the best two are then trained in six column orders each, and the mixtures are compared. A trial
that would exceed the time limit is not started, and one that is in the file is not run again; give
the same command again to continue. Writes results/experiments/miniboone.json.
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
    "train.weight_decay": "0.3",
    "train.validate_every": "500",
    "ensemble.members": "1",
}
# The settings that each trial changes, the most promising trials first.
TRIALS: Final = {
    "base": "",
    "weight decay 1": "train.weight_decay=1.0",
    "weight decay 1, dropout 0.2": "train.weight_decay=1.0 model.dropout=0.2",
    "weight decay 1, longer": "train.weight_decay=1.0 train.steps=12_000 train.averaging=0.9995",
    "weight decay 3": "train.weight_decay=3.0 model.dropout=0.2",
    "10 components": "model.components=10 train.nodes=40",
    "small batches": "train.batch_size=128 train.learning_rate=5e-4 train.steps=10_000",
    "energy dropout 0.35": "model.energy_dropout=0.35",
    "wide": "model.hidden=1024 model.dropout=0.5 train.weight_decay=1.0",
    "two blocks": "model.blocks=2",
    "40 nodes": "train.nodes=40",
    "frequencies": "model.frequencies=2 model.fourier_past=false",
    "transformer": (
        "model.network=transformer model.hidden=128 model.dropout=0.2 train.rise=500"
        " train.batch_size=256 train.steps=8_000"
    ),
    "whitened": "model.whiten=true",
}


def settings_of(name: str, *further: str) -> list[str]:
    """Return the settings of a trial as on the command line; later ones replace earlier ones."""
    pairs = (text.split("=", 1) for text in (*TRIALS[name].split(), *further))
    return [f"{key}={value}" for key, value in {**BASE, **dict(pairs)}.items()]


class Budget:
    """The time for all trials; the longest trial so far predicts the next."""

    def __init__(self, seconds: float) -> None:
        self.end, self.longest = time.monotonic() + seconds, 0.0

    def suffices(self, times: float = 1.0) -> bool:
        """Return whether a trial as long as the longest so far can still end in time."""
        return time.monotonic() + times * self.longest <= self.end

    def run(self, trials: Trials, settings: list[str]) -> None:
        """Run a trial, or read it from the file."""
        began = time.monotonic()
        trials.score(settings)
        self.longest = max(self.longest, time.monotonic() - began)


def found(trials: Trials, settings: list[str]) -> dict[str, Any] | None:
    """Return the trial of some settings, if it was run."""
    return next((trial for trial in trials.trials if trial["settings"] == settings), None)


def table(rows: list[tuple[str, dict[str, Any]]]) -> str:
    """Return a table of the trials from the best to the worst."""
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
    """Run the trials for which there is time and print the table."""
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
