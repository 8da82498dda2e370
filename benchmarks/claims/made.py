"""Compare our patches of BSDS300 with MAF's by the score of MAF's MADE with mixtures.

Run `python -m benchmarks.claims.made` on a GPU. Networks and training are those of MAF: one or two
hidden layers of 512 or 1,024 units, ten Gaussians per conditional, patches without standardisation,
and Adam with a constant learning rate, stopped after thirty epochs without improvement. The network
with the best validation score is scored on test rows.
"""

import argparse
import itertools
import math
import time
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aem.base.devices import choose_device
from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.conditionals.proposals.gaussian import GaussianMixture
from aem.config import TrainConfig
from aem.data import registry
from aem.evaluation.summary import two_standard_errors
from aem.nn.masks import MaskedLinear, hidden_degrees
from aem.training.batches import Batches
from aem.training.checkpoint import TrainingState
from aem.training.display import Reporter
from aem.training.steps import EagerStep, captured_on_gpu
from aem.training.trainer import Trainer, Validation, all_finite


@dataclass(frozen=True)
class Study:
    """MAF's settings."""

    hidden: tuple[int, ...] = (512, 1024)
    layers: tuple[int, ...] = (1, 2)
    components: int = 10
    batch_size: int = 100
    learning_rate: float = 1e-3
    penalty: float = 1e-6  # on squared weights
    patience: int = 30  # epochs
    epochs: int = 1000  # at most
    seed: int = 0


class MixtureMade(nn.Module):
    """A MADE whose conditionals are mixtures of Gaussians: logits, means, log precisions."""

    def __init__(self, features: int, hidden: int, layers: int, components: int) -> None:
        super().__init__()
        self.components = components
        inputs, units = torch.arange(1, features + 1), hidden_degrees(features, hidden)
        outputs = inputs.repeat_interleave(3 * components)
        inner = [MaskedLinear(inputs if k == 0 else units, units) for k in range(layers)]
        self.inner, self.final = nn.ModuleList(inner), MaskedLinear(units, outputs, strict=True)
        for layer in (*inner, self.final):
            nn.init.normal_(layer.weight, std=1 / math.sqrt(layer.in_features + 1))
            nn.init.zeros_(layer.bias)
            layer.erase_masked()
        nn.init.normal_(self.final.bias)

    def parameters_of(self, x: Tensor) -> Tensor:
        """Return the parameters of the conditionals [rows, features, 3, components]."""
        h = x
        for layer in self.inner:
            h = layer(h).relu()
        out: Tensor = self.final(h)
        return out.view(*x.shape, 3, self.components)

    def forward(self, x: Tensor) -> Tensor:
        """Log densities of rows."""
        logits, means, log_precisions = self.parameters_of(x).unbind(-2)
        mixture = GaussianMixture(logits, means, (-log_precisions / 2).exp())
        return mixture.log_prob(x[..., None]).sum((-1, -2))


@torch.no_grad()
def scores(model: MixtureMade, rows: Tensor) -> Tensor:
    """Return log densities, computed in blocks of rows."""
    return torch.cat([model(some) for some in rows.split(10_000)]).double()


class MadeStep(EagerStep):
    """A step of MAF's training."""

    def __init__(self, model: MixtureMade, rows: Tensor, study: Study) -> None:
        self.model, self.rows = model, rows
        self.adam = torch.optim.Adam(
            model.parameters(),
            study.learning_rate,
            weight_decay=2 * study.penalty,  # the slope of the penalty
            fused=True,
            capturable=rows.is_cuda,
        )

    def phase(self, step: int) -> None:
        """Return the only phase of this training."""

    def set_schedule(self, step: int) -> None:
        """Do nothing: no setting depends on the step."""

    def run(self, indices: Tensor, phase: Hashable) -> Tensor:
        """Train on one batch."""
        self.adam.zero_grad(set_to_none=False)
        loss: Tensor = -self.model(self.rows[indices]).mean()
        loss.backward()
        self.adam.step()
        return loss.detach()


def train(model: MixtureMade, rows: Tensor, validation: Tensor, study: Study) -> TrainingState:
    """Train until the validation score stops improving, and restore the best weights."""
    batches = len(rows) // study.batch_size  # an epoch
    plan = TrainConfig(
        steps=study.epochs * batches, validate_every=batches, patience=study.patience
    )

    def validate() -> Validation:
        score = float(scores(model, validation).mean())
        return Validation(score, score, {"validation_log_prob": score})

    progress = TrainingState()
    with Reporter(plan.steps) as reporter:
        Trainer(
            plan,
            captured_on_gpu(MadeStep(model, rows, study), rows.device),
            Batches(len(rows), study.batch_size, study.seed, rows.device),
            model,
            validate,
            finite=lambda: all_finite(model.parameters()),
            write=lambda path, so_far: None,
            reporter=reporter,
            checkpoint=None,
            advice="try a smaller learning rate",
        ).train(progress)
    model.load_state_dict(progress.best_weights)
    return progress


def main() -> None:
    """Measure everything and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/experiments/made.json"))
    parser.add_argument("--hidden", type=int, nargs="+", default=Study.hidden)
    parser.add_argument("--layers", type=int, nargs="+", default=Study.layers)
    parser.add_argument("--epochs", type=int, default=Study.epochs, help="at most")
    arguments = parser.parse_args()
    study = Study(tuple(arguments.hidden), tuple(arguments.layers), epochs=arguments.epochs)
    device, splits, started = choose_device("auto"), registry.load("bsds300"), time.monotonic()
    rows, validation, test = (
        torch.from_numpy(np.asarray(part, dtype=np.float32)).to(device)
        for part in (splits.train, splits.validation, splits.test)
    )
    result: dict[str, Any] = {"task": "made", **provenance(study, study.seed, device), "runs": []}
    chosen, highest = None, -math.inf
    for hidden, layers in itertools.product(study.hidden, study.layers):
        print(f"{layers} × {hidden}", flush=True)
        torch.manual_seed(study.seed)
        model = MixtureMade(rows.shape[1], hidden, layers, study.components).to(device)
        progress = train(model, rows, validation, study)
        run = {
            "hidden": hidden,
            "layers": layers,
            "best_step": progress.best_step,
            "best_validation_log_prob": progress.best_score,
        }
        result["runs"].append({**run, "history": progress.history})
        if progress.best_score > highest:
            chosen, highest, result["best"] = model, progress.best_score, run
        result["seconds"] = time.monotonic() - started
        write_json(arguments.out, result)  # what there is, should this be stopped
    assert chosen is not None
    found = scores(chosen, test).cpu().numpy()
    result["test"], result["test_2se"] = float(found.mean()), two_standard_errors(found)
    result["seconds"] = time.monotonic() - started
    print({k: v for k, v in result.items() if k.startswith(("best", "test"))}, flush=True)
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
