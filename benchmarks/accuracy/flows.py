"""zuko's flows on one of our tables, trained on the same rows and chosen on the same validation rows.

Run `python -m benchmarks.accuracy.flows miniboone --seconds 200` on a GPU. All settings train for
that long, in parallel processes, because the steps of one flow leave a GPU idle most of the time;
the learning rate follows half a cosine. For each family the setting with the best validation score
is scored on the test rows, once. Writes results/flows/<table>.json.
"""

import argparse
import copy
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aem.base.devices import choose_device
from aem.base.files import finite, write_json
from aem.base.provenance import provenance
from aem.data.splits import Table
from aem.evaluation.side_by_side import summarise
from aem.paper.tables.config import FULL_TABLES, SMALL_TABLES, TableTask
from aem.paper.tables.run import load_splits
from benchmarks.places import ROOT

CLIP: Final = 5.0
STEPS_BETWEEN_VALIDATIONS: Final = 100


@dataclass(frozen=True)
class Setting:
    """A flow and how it is trained."""

    family: str  # a class of zuko.flows
    transforms: int
    hidden: tuple[int, ...]
    dropout: float = 0.0
    weight_decay: float = 0.0
    learning_rate: float = 1e-3
    batch: int = 512


@dataclass(frozen=True)
class Study:
    """All settings, and how long each trains."""

    settings: tuple[Setting, ...] = (
        Setting("NSF", 5, (128, 128)),
        Setting("NSF", 5, (256, 256), dropout=0.2, weight_decay=0.01),
        Setting("NSF", 10, (128, 128), dropout=0.2, learning_rate=5e-4),
        Setting("MAF", 5, (512, 512), dropout=0.2, learning_rate=5e-4),
        Setting("MAF", 10, (256, 256), dropout=0.2, weight_decay=0.01),
    )
    seconds: float = 200.0
    steps: float = math.inf  # at most
    seed: int = 0


@dataclass(frozen=True)
class Fitted:
    """The weights with the best validation score, and how they were trained."""

    setting: Setting
    weights: dict[str, Tensor]
    validation: float
    record: dict[str, Any]


def make_flow(setting: Setting, features: int) -> nn.Module:
    """Build a flow with initial weights."""
    zuko = import_module("zuko")

    def activation() -> nn.Module:
        return (
            nn.Sequential(nn.ReLU(), nn.Dropout(setting.dropout)) if setting.dropout else nn.ReLU()
        )

    flow: nn.Module = getattr(zuko.flows, setting.family)(
        features,
        transforms=setting.transforms,
        hidden_features=setting.hidden,
        activation=activation,
        randperm=True,
    )
    return flow


@torch.no_grad()
def scores(flow: Any, rows: Table) -> NDArray[np.float64]:
    """Return the log densities of rows."""
    device = next(flow.parameters()).device
    flow.eval()
    parts = torch.from_numpy(rows).to(device).split(2_000)
    return torch.cat([flow().log_prob(some).double().cpu() for some in parts]).numpy()


def descend(flow: Any, optimiser: torch.optim.Optimizer, rows: Tensor) -> None:
    """One step towards a greater likelihood of some rows."""
    loss = -flow().log_prob(rows).mean()
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(flow.parameters(), CLIP)
    optimiser.step()


def fit(
    setting: Setting, train: Table, validation: Table, study: Study, device_name: str
) -> Fitted:
    """Train until the time or the steps are over; keep the weights with the best validation score."""
    torch.manual_seed(study.seed)
    device = choose_device(device_name)
    torch.set_num_threads(1)  # several flows train side by side
    flow: Any = make_flow(setting, train.shape[1]).to(device)
    adam = torch.optim.AdamW(
        flow.parameters(), setting.learning_rate, weight_decay=setting.weight_decay
    )
    rows = torch.from_numpy(train).to(device)
    best, best_step, weights = -math.inf, 0, copy.deepcopy(flow.state_dict())
    history: list[tuple[int, float]] = []
    step, began, spent = 0, time.monotonic(), 0.0
    order = torch.randperm(len(rows), device=device)
    while spent < 1:
        first = step * setting.batch % (len(rows) - setting.batch + 1)
        if first < setting.batch:
            order = torch.randperm(len(rows), device=device)
        for group in adam.param_groups:
            group["lr"] = 0.5 * setting.learning_rate * (1 + math.cos(math.pi * spent))
        flow.train()
        descend(flow, adam, rows[order[first : first + setting.batch]])
        step += 1
        spent = max((time.monotonic() - began) / study.seconds, step / study.steps)
        if step % STEPS_BETWEEN_VALIDATIONS == 0 or spent >= 1:
            score = float(scores(flow, validation).mean())
            history.append((step, round(score, 4)))
            if score > best:
                best, best_step, weights = score, step, copy.deepcopy(flow.state_dict())
    record = {
        **asdict(setting),
        "validation_log_prob": best,
        "best_step": best_step,
        "steps": step,
        "seconds": round(time.monotonic() - began, 1),
        "history": history,
    }
    return Fitted(setting, {k: v.cpu() for k, v in weights.items()}, best, record)


def compare(
    study: Study,
    train: Table,
    validation: Table,
    test: Table,
    device: str = "auto",
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Return all validation scores, and the test score of the best setting of each family."""
    with ProcessPoolExecutor(len(study.settings), get_context("spawn")) as pool:
        futures = [
            pool.submit(fit, setting, train, validation, study, device)
            for setting in study.settings
        ]
        fitted = [future.result() for future in futures]
    for one in fitted:
        report(f"{one.setting}: validation {one.validation:.4f} at {one.record['best_step']:,}")
    chosen = {}
    for family in dict.fromkeys(setting.family for setting in study.settings):
        best = max((f for f in fitted if f.setting.family == family), key=lambda f: f.validation)
        flow = make_flow(best.setting, train.shape[1])
        flow.load_state_dict(best.weights)
        found = summarise(torch.from_numpy(scores(flow.to(choose_device(device)), test)))
        report(f"{family}: test {found.mean:.4f} ± {found.two_se:.4f}")
        chosen[family] = {
            "setting": asdict(best.setting),
            "validation_log_prob": best.validation,
            **{f"test_{key}": value for key, value in asdict(found).items()},
        }
    return {"chosen": chosen, "trials": [one.record for one in fitted]}


def main() -> None:
    """Train all settings, choose the best, score them and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", choices=(*FULL_TABLES, *SMALL_TABLES))
    parser.add_argument("--seconds", type=float, default=Study.seconds, help="for each setting")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    study, splits = Study(seconds=arguments.seconds), load_splits(TableTask(arguments.table))
    found = compare(study, splits.train, splits.validation, splits.test, device=arguments.device)
    record = {
        "task": arguments.table,
        **provenance(study, study.seed, choose_device(arguments.device)),
        "rows": {k: len(getattr(splits, k)) for k in ("train", "validation", "test")},
        **found,
    }
    out = arguments.out or ROOT / "results" / "flows" / f"{arguments.table}.json"
    write_json(out, finite(record))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
