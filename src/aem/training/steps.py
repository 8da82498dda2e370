"""Training steps, run operation by operation or as a captured CUDA graph."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Step(Protocol):
    """A training step: it takes row numbers and returns the loss, a tensor on the device."""

    def __call__(self, step: int, indices: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        """Train on one batch."""


class EagerStep(ABC):
    """A training step in plain PyTorch, one operation after the other.

    Steps differ in numbers, such as the learning rate, and in their phase, which decides which
    operations there are. `set_schedule` stores the numbers in tensors that `run` reads, so that one
    CUDA graph serves all steps of a phase.
    """

    def __call__(self, step: int, indices: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        """Train on one batch."""
        self.set_schedule(step)
        return self.run(indices, self.phase(step))

    @abstractmethod
    def phase(self, step: int) -> Hashable:
        """Return the phase of a step."""

    @abstractmethod
    def set_schedule(self, step: int) -> None:
        """Store the numbers that depend on the step in tensors that `run` reads."""

    @abstractmethod
    def run(self, indices: Int[Tensor, " B"], phase: Hashable) -> Float[Tensor, ""]:
        """Train on one batch, with the numbers that `set_schedule` has stored."""


class GraphStep:
    """A step captured as a CUDA graph, one for each phase, and replayed without work on the host."""

    EAGER_STEPS = 3  # before a capture, as some state is created in the first step

    def __init__(self, eager: EagerStep) -> None:
        self.eager = eager
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.seen: dict[Hashable, int] = {}
        self.stream = torch.cuda.Stream()

    def __call__(self, step: int, indices: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        """Train on one batch."""
        phase = self.eager.phase(step)
        self.eager.set_schedule(step)
        seen = self.seen.get(phase, 0)
        if seen < self.EAGER_STEPS:
            self.seen[phase] = seen + 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self.eager.run(indices, phase)
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        if phase not in self.graphs:
            graph, own = torch.cuda.CUDAGraph(), indices.clone()
            with torch.cuda.graph(graph):
                loss = self.eager.run(own, phase)
            self.graphs[phase] = graph, own, loss
        graph, own, loss = self.graphs[phase]
        own.copy_(indices)
        graph.replay()
        return loss


def captured_on_gpu(eager: EagerStep, device: torch.device) -> Step:
    """Return the step as a CUDA graph on a GPU, and as it is elsewhere."""
    return GraphStep(eager) if device.type == "cuda" else eager
