"""The implementations that the speed benchmark compares, with a common interface.

Each is built for a shape and provides a training step, scores of rows and new rows. *ours* has the
networks of the paper, with the layers of the textbook implementation; *ours Fourier* adds the
default of 8 frequencies per scalar. Weights are random, also those that are zero at initialisation,
so that no energy is constant.
"""

import copy
import dataclasses
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from aem.base.devices import use_bfloat16
from aem.conditionals.normalizer import Quadrature
from aem.config import ModelConfig, TrainConfig
from aem.model.aem import AEM
from aem.nn import kernels
from aem.nn.energy import EnergyNetwork
from aem.training.batches import Batches
from aem.training.objective import DensityStep
from aem.training.optimizer import Descent
from aem.training.steps import captured_on_gpu
from benchmarks.speed.textbook import SCORED, TextbookAEM, TextbookTraining

ROWS = 2**15  # of random training data
SPLINE_TRANSFORMS = 3  # zuko's default
TOLERANCE = 1e-3  # nats per row
STEPS = 10**6  # of the schedule: long enough for the rate to stay where it starts


@dataclass(frozen=True)
class Shape:
    """The sizes of a problem: D features, B rows per step, H hidden units, S nodes."""

    name: str
    features: int
    batch: int
    hidden: int
    nodes: int = 20
    components: int = 20
    dropout: float = 0.2
    frequencies: int = 0

    def rows(self, count: int, seed: int = 0) -> Tensor:
        """Draw correlated normal rows of variance one."""
        mixing = torch.randn(
            self.features, self.features, generator=torch.Generator().manual_seed(self.features)
        )
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randn(count, self.features, generator=generator) @ mixing
        scaled: Tensor = rows / mixing.norm(dim=0)
        return scaled

    def model(self) -> ModelConfig:
        """Return our configuration of this shape."""
        return ModelConfig(
            features=self.features,
            hidden=self.hidden,
            components=self.components,
            dropout=self.dropout,
            energy_dropout=self.dropout,
            frequencies=self.frequencies,
        )


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("plane", 2, 256, 256),
        Shape("POWER", 6, 512, 512),
        Shape("HEPMASS", 21, 512, 512),
        Shape("MINIBOONE", 43, 512, 512),
        Shape("BSDS300", 63, 512, 1024),
    )
}


class Contender(Protocol):
    """One implementation of one shape on one device."""

    shape: Shape
    accuracy: str
    parameters: int

    def step(self) -> Callable[[], object] | None:
        """Return a function that trains on a new batch; none where steps are not compared."""

    def score(self, rows: Tensor) -> Tensor:
        """Return log densities [B] of rows [B, D]."""

    def sample(self, rows: int) -> Tensor:
        """Return new rows [B, D]."""

    def about(self, rows: Tensor) -> dict[str, float]:
        """Return details of the scores of these rows, such as the number of nodes."""


class Ours:
    """The library itself: the step of `aem.training.fit`, default scores and samples."""

    accuracy = f"quadrature, {TOLERANCE:g} nats per row"

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape, self.device = shape, device
        torch.manual_seed(0)
        data = shape.rows(ROWS)
        self.model = AEM.for_data(shape.model(), data.numpy()).to(device)
        self.data = self.model.standardise(data.to(device))
        fill(self.model)
        self.parameters = _count(self.model)
        self.settings = Quadrature(tolerance=TOLERANCE)

    def step(self, *, proposal_only: bool = False) -> Callable[[], object]:
        """Return the complete training step, captured in a graph on a GPU."""
        config = TrainConfig(
            steps=STEPS,
            batch_size=self.shape.batch,
            learning_rate=5e-4,
            nodes=self.shape.nodes,
            warmup=STEPS if proposal_only else 0,
            device=str(self.device),
        )
        model = self.model.train()
        average = copy.deepcopy(model).eval().requires_grad_(False)
        bfloat16 = use_bfloat16(config.precision, self.device)
        descent = Descent(model, average, config, half=bfloat16)
        eager = DensityStep(model, descent, config, self.data, None, bfloat16=bfloat16)
        step = captured_on_gpu(eager, self.device)
        batches = Batches(len(self.data), self.shape.batch, 0, self.device)
        done = 0

        def train() -> Tensor:
            nonlocal done
            loss = step(done, batches.indices(done))
            done += 1
            return loss

        return train

    def score(self, rows: Tensor) -> Tensor:
        """Score rows by quadrature."""
        self.model.eval()
        scores: Tensor = self.model().scores(rows, self.settings).log_prob
        return scores.sum(-1)

    def sample(self, rows: int) -> Tensor:
        """Draw exact samples."""
        drawn: Tensor = self.model.eval()().sample((rows,))
        return drawn

    def about(self, rows: Tensor) -> dict[str, float]:
        """Return the nodes per conditional and the largest estimated error of a row."""
        scores = self.model.eval()().scores(rows, self.settings)
        return {
            "nodes_per_conditional": float(scores.nodes.double().mean()),
            "largest_error": float(scores.error.sum(-1).max()),
            "converged": float(scores.converged.double().mean()),
        }


class Compiled(Ours):
    """The library with both networks compiled by torch.compile instead of our kernels."""

    def step(self, *, proposal_only: bool = False) -> Callable[[], object]:
        """Return the same step, run with all kernels disabled."""
        self.model.arnn.compile()
        self.model.energy.compile()
        plain = super().step(proposal_only=proposal_only)

        def step() -> object:
            before = kernels.TRITON, EnergyNetwork._fuses_on_processor
            self._decide(False, lambda *_: False)
            try:
                return plain()
            finally:
                self._decide(*before)

        return step

    @staticmethod
    def _decide(triton: bool, on_processor: Callable[..., bool]) -> None:
        kernels.TRITON = triton
        EnergyNetwork._fuses_on_processor = on_processor  # type: ignore[method-assign]


class Textbook:
    """The plain implementation of `benchmarks/speed/textbook.py`."""

    accuracy = f"{SCORED:,} importance samples"

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape = shape
        torch.manual_seed(0)
        self.model = TextbookAEM(
            shape.features,
            hidden=shape.hidden,
            components=shape.components,
            dropout=shape.dropout,
        ).to(device)
        self.data = shape.rows(ROWS).to(device)
        self.parameters = _count(self.model)

    def step(self) -> Callable[[], object]:
        """Return a step of Adam on a random batch."""
        train = TextbookTraining(self.model.train(), steps=STEPS, samples=self.shape.nodes)
        batch = self.shape.batch

        def step() -> Tensor:
            return train(self.data[torch.randint(ROWS, (batch,), device=self.data.device)])

        return step

    def score(self, rows: Tensor) -> Tensor:
        """Score rows as the paper does."""
        return self.model.eval().score(rows)

    def sample(self, rows: int) -> Tensor:
        """Draw rows as the paper does."""
        return self.model.eval().sample(rows)

    def about(self, rows: Tensor) -> dict[str, float]:
        """Return the number of samples; their error is not known."""
        return {"nodes_per_conditional": float(SCORED)}


class Flow:
    """A flow of zuko with the same width: exact scores, and D passes per transform to draw."""

    accuracy = "exact"

    def __init__(self, kind: str, shape: Shape, device: torch.device) -> None:
        import zuko  # installed or not: `missing` knows

        self.shape = shape
        torch.manual_seed(0)
        family: Any = getattr(zuko.flows, kind)
        width = (shape.hidden, shape.hidden)
        flow = family(shape.features, transforms=SPLINE_TRANSFORMS, hidden_features=width)
        self.flow = flow.to(device).eval()
        self.parameters = _count(self.flow)

    def step(self) -> None:
        """Return nothing: the model and its loss are different."""

    @torch.no_grad()
    def score(self, rows: Tensor) -> Tensor:
        """Score rows in one pass."""
        log_prob: Tensor = self.flow().log_prob(rows)
        return log_prob

    @torch.no_grad()
    def sample(self, rows: int) -> Tensor:
        """Draw rows by inverting the flow feature by feature."""
        drawn: Tensor = self.flow().sample((rows,))
        return drawn

    def about(self, rows: Tensor) -> dict[str, float]:
        """Return nothing: a flow needs no integration."""
        return {}


CONTENDERS: dict[str, Callable[[Shape, torch.device], Contender]] = {
    "ours": Ours,
    "textbook": Textbook,
    "zuko NSF": lambda shape, device: Flow("NSF", shape, device),
    "zuko MAF": lambda shape, device: Flow("MAF", shape, device),
    "ours Fourier": lambda shape, device: Ours(
        dataclasses.replace(shape, frequencies=ModelConfig.frequencies), device
    ),
    "ours torch.compile": Compiled,  # for the step
}


def missing(name: str) -> str | None:
    """Return why an implementation cannot be measured here, or nothing."""
    if name.startswith("zuko") and importlib.util.find_spec("zuko") is None:
        return "zuko is not installed"
    return None


@torch.no_grad()
def fill(model: AEM) -> None:
    """Draw random weights where those of a fresh model are zero, so that no energy is constant."""
    for block in (*model.arnn.blocks, *model.energy.blocks):
        nn.init.normal_(block.second.weight, std=0.05)


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
