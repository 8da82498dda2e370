"""Validation curves of POWER in mixed precision and in float32.

Run `python -m benchmarks.claims.precision` on a GPU; it writes results/precision/power.json.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from aem.base.devices import choose_device
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.model.aem import AEM
from aem.paper.plots import new_figure, save_figure
from aem.paper.tables.config import TableConfig, table_experiment
from aem.paper.tables.run import load_splits
from aem.training.loop import fit

PRECISIONS = ("bfloat16", "float32")


def curve(config: TableConfig, seed: int) -> dict[str, Any]:
    """Train once and return validation log-likelihoods by step, and the time."""
    splits = load_splits(config.task)
    torch.manual_seed(seed)
    model = AEM.for_data(config.model, splits.train)
    progress = fit(model, splits.train, splits.validation, config.train, quiet=True)
    return {
        "precision": config.train.precision,
        "seed": seed,
        "seconds": progress.seconds,
        "steps": [entry["step"] for entry in progress.history],
        "validation": [entry["validation_log_prob"] for entry in progress.history],
    }


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw the curves."""
    figure, (axes,) = new_figure(6.4, 3.6, 1)
    styles = {"bfloat16": ("tab:blue", "-"), "float32": ("tab:orange", "--")}
    for run in runs:
        colour, line = styles[run["precision"]]
        label = run["precision"] if run["seed"] == 0 else None
        axes.plot(run["steps"], run["validation"], line, color=colour, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("validation log-likelihood, nats")
    axes.set_title("POWER: mixed precision and float32, step by step")
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)


def main() -> None:
    """Train in both precisions with the same seeds and batches, and write after each run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/precision/power.json"))
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    runs: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        for precision in PRECISIONS:
            settings = [
                f"train.steps={arguments.steps}",
                f"train.precision={precision}",
                f"train.seed={seed}",
                "train.batch_size=512",
            ]
            config = table_experiment("power", "best", None, settings)
            runs.append(curve(config, seed))
            last = runs[-1]
            print(f"{precision}: {last['validation'][-1]:.4f}, {last['seconds']:.0f} s", flush=True)
            write_json(
                arguments.out,
                {
                    "task": "power",
                    "preset": "precision",
                    **provenance(config, seed, choose_device("auto")),
                    "runs": runs,
                },
            )
    draw(runs, arguments.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
