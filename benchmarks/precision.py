"""Does mixed precision learn as fast as float32? The two validation curves of POWER, side by side.

Run `python benchmarks/precision.py` on a GPU; it writes results/precision/power.json.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from aem.io import write_json
from aem.model import AEM
from aem.provenance import provenance
from aem.tabular.config import TableConfig, table_experiment
from aem.tabular.run import load_table
from aem.training.loop import choose_device, fit

PRECISIONS = ("bfloat16", "float32")


def curve(config: TableConfig, seed: int) -> dict[str, Any]:
    """Train once; validation log-likelihoods by step, and the seconds it took."""
    splits = load_table(config.task)
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


def main() -> None:
    """Both precisions, same seeds, same batches; written after each run."""
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


if __name__ == "__main__":
    main()
