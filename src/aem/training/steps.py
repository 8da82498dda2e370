"""One training step: the loss and a step down its gradient. Eager, or captured in a CUDA graph."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from aem.config import TrainConfig
from aem.estimation import log_prob_estimate
from aem.model import AEM
from aem.training.descent import Descent
from aem.training.schedule import averaging_decay, cosine


@runtime_checkable
class Rates(Protocol):
    """What an optimiser is made from."""

    @property
    def learning_rate(self) -> float:
        """At its highest."""

    @property
    def weight_decay(self) -> float:
        """Decoupled from the gradient."""


def make_optimiser(
    model: torch.nn.Module, config: Rates, device: torch.device
) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay; on a GPU with its rate on the device, for graph capture."""
    cuda = device.type == "cuda"
    rate = torch.tensor(config.learning_rate, device=device) if cuda else config.learning_rate
    return torch.optim.AdamW(
        model.parameters(), lr=rate, weight_decay=config.weight_decay, fused=True, capturable=cuda
    )


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Put a learning rate where the optimiser, or a captured graph of it, finds it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def descend(
    loss: Float[Tensor, ""],
    optimiser: torch.optim.Optimizer,
    parameters: list[torch.nn.Parameter],
    clip: float,
) -> None:
    """One step down the gradient, which is clipped to a norm (zero: not at all)."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(parameters, clip)
    optimiser.step()


@torch.no_grad()
def update_average(
    averages: list[Tensor], parameters: list[torch.nn.Parameter], keep: Float[Tensor, ""]
) -> None:
    """The averages keep a share `keep` of themselves and take the rest from the weights."""
    torch._foreach_mul_(averages, keep)
    fresh = torch._foreach_mul([p.detach() for p in parameters], 1 - keep)
    torch._foreach_add_(averages, fresh)


def objective(
    model: AEM,
    z: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    config: TrainConfig,
    *,
    proposal_only: bool,
) -> Float[Tensor, ""]:
    """Mean of −(log p̂ + log q) over the batch (paper, equation 7); −log q alone in warm-up.

    A proposal without parameters has nothing to warm up.
    """
    conditionals = model.conditionals(z, context)
    if proposal_only and model.head.size:
        return conditionals.proposal.log_prob(z[..., None]).sum() / -len(z)
    log_p, log_q = log_prob_estimate(
        conditionals,
        z,
        nodes=config.nodes,
        estimator=config.estimator,
        stratified=config.stratified,
    )
    return (log_p + log_q).sum() / -len(z)


class Step(Protocol):
    """Takes row numbers, trains, and returns the loss as a tensor that stays on the device."""

    def __call__(self, step: int, indices: Tensor) -> Tensor:
        """Train on one batch."""


class EagerStep:
    """The reference: plain PyTorch, one operation after the other."""

    def __init__(
        self,
        model: AEM,
        descent: Descent,
        config: TrainConfig,
        rows: Float[Tensor, "N D"],
        context: Float[Tensor, "N Q"] | None,
        *,
        bfloat16: bool = False,
    ) -> None:
        self.model, self.descent = model, descent
        self.config, self.rows, self.context = config, rows, context
        self.bfloat16 = bfloat16

    def __call__(self, step: int, indices: Tensor) -> Tensor:
        """Train on one batch."""
        self.set_schedule(step)
        return self.run(indices, proposal_only=step < self.config.warmup)

    def set_schedule(self, step: int) -> None:
        """Put the step's learning rate and averaging decay where `run` finds them."""
        rate = cosine(step, self.config.steps, self.config.learning_rate)
        self.descent.schedule(rate, averaging_decay(step, self.config.averaging))

    def run(self, indices: Tensor, *, proposal_only: bool) -> Tensor:
        """Everything of a step that does not depend on its number."""
        z = self.rows[indices]
        context = None if self.context is None else self.context[indices]
        with torch.autocast(self.rows.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss = objective(self.model, z, context, self.config, proposal_only=proposal_only)
        self.descent(loss)
        return loss.detach()


class GraphStep:
    """`EagerStep` recorded once as a CUDA graph and replayed: no host work between kernels."""

    EAGER_STEPS = 3  # before capture, so that lazily created state exists

    def __init__(self, eager: EagerStep) -> None:
        self.eager = eager
        self.indices = torch.zeros(
            eager.config.batch_size, dtype=torch.long, device=eager.rows.device
        )
        self.graphs: dict[bool, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.seen: dict[bool, int] = {True: 0, False: 0}
        self.stream = torch.cuda.Stream()

    def __call__(self, step: int, indices: Tensor) -> Tensor:
        """Train on one batch."""
        phase = step < self.eager.config.warmup
        self.eager.set_schedule(step)
        if self.seen[phase] < self.EAGER_STEPS:
            self.seen[phase] += 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self.eager.run(indices, proposal_only=phase)
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        self.indices.copy_(indices)
        if phase not in self.graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                loss = self.eager.run(self.indices, proposal_only=phase)
            self.graphs[phase] = graph, loss
        graph, loss = self.graphs[phase]
        graph.replay()
        return loss
