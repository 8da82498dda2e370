"""One training step: the loss and a step down its gradient. Eager, or captured in a CUDA graph."""

from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from aem.config import TrainConfig
from aem.estimation import log_prob_estimate
from aem.model import AEM
from aem.training.descent import Descent
from aem.training.schedule import averaging_decay, cosine


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
