"""Are the patches of BSDS300 as hard as MAF's? What MAF's MADE with mixtures scores on them.

Run `python benchmarks/made.py`, on a GPU. Networks and training are as MAF had them: one or two hidden
layers of 512 or 1,024 units, ten Gaussians a conditional, patches as they are, Adam with a constant
learning rate, stopped when thirty epochs have brought nothing. The best on validation rows is scored on
test rows.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aem.data import registry
from aem.io import write_json
from aem.nn.masks import MaskedLinear, hidden_degrees
from aem.provenance import provenance
from aem.reproduce import two_standard_errors
from aem.training.loop import choose_device


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
        """What the conditionals of rows are made of [rows, features, 3, components]."""
        h = x
        for layer in self.inner:
            h = layer(h).relu()
        out: Tensor = self.final(h)
        return out.view(*x.shape, 3, self.components)

    def forward(self, x: Tensor) -> Tensor:
        """Log densities of rows."""
        logits, means, log_precisions = self.parameters_of(x).unbind(-2)
        exponents = log_precisions - log_precisions.exp() * (x[..., None] - means) ** 2
        mixed: Tensor = (logits.log_softmax(-1) + exponents / 2).logsumexp(-1)
        return mixed.sum(-1) - x.shape[-1] / 2 * math.log(2 * math.pi)


@torch.no_grad()
def scores(model: MixtureMade, rows: Tensor) -> Tensor:
    """Log densities, block by block."""
    return torch.cat([model(some) for some in rows.split(10_000)]).double()


def epoch_on(model: MixtureMade, rows: Tensor, study: Study) -> Callable[[], None]:
    """One epoch of training, to be called again and again; on a GPU its step is captured once."""
    batches = len(rows) // study.batch_size
    order = torch.zeros((batches, study.batch_size), dtype=torch.long, device=rows.device)
    place = torch.zeros(1, dtype=torch.long, device=rows.device)
    adam = torch.optim.Adam(
        model.parameters(),
        study.learning_rate,
        weight_decay=2 * study.penalty,
        fused=True,
        capturable=rows.is_cuda,
    )

    def step() -> None:
        batch = rows[order.index_select(0, place)[0]]
        adam.zero_grad(set_to_none=False)
        (-model(batch).mean()).backward()
        adam.step()
        place.add_(1)

    def shuffle() -> None:
        drawn = torch.randperm(len(rows))[: batches * study.batch_size]
        order.copy_(drawn.view(batches, -1))
        place.zero_()

    shuffle()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    take = captured(step) if rows.is_cuda else step

    def epoch() -> None:
        shuffle()
        for _ in range(batches):
            take()

    return epoch


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The same as a CUDA graph; a few steps are taken to warm up."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def train(
    model: MixtureMade, rows: Tensor, validation: Tensor, study: Study
) -> list[tuple[int, float]]:
    """Train until validation is no better for a while; leaves the best weights, returns the curve."""
    epoch, curve = epoch_on(model, rows, study), []
    best, best_epoch, weights = -math.inf, 0, model.state_dict()
    for number in range(1, study.epochs + 1):
        epoch()
        found = float(scores(model, validation).mean())
        curve.append((number, found))
        if found > best:
            best, best_epoch = found, number
            weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        print(f"  epoch {number}: {found:.3f}, best {best:.3f}", flush=True)
        if number - best_epoch >= study.patience:
            break
    model.load_state_dict(weights)
    return curve


def main() -> None:
    """Measure and write."""
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
    for hidden in study.hidden:
        for layers in study.layers:
            print(f"{layers} × {hidden}", flush=True)
            torch.manual_seed(study.seed)
            model = MixtureMade(rows.shape[1], hidden, layers, study.components).to(device)
            curve = train(model, rows, validation, study)
            best = max(score for _, score in curve)
            result["runs"].append({"hidden": hidden, "layers": layers, "curve": curve})
            if best > highest:
                chosen, highest = model, best
                result["best"] = {"hidden": hidden, "layers": layers, "validation": best}
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
