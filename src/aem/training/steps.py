"""A training step, run as it is written or captured in a CUDA graph."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Step(Protocol):
    """Takes row numbers, trains, and returns the loss as a tensor that stays on the device."""

    def __call__(self, step: int, indices: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        """Train on one batch."""


class EagerStep(ABC):
    """The reference: plain PyTorch, one operation after the other.

    What differs between steps is either a number, which `set_schedule` puts where `run` finds it, or
    a phase: which operations there are. So a graph of each phase can stand for all of its steps.
    """

    def __call__(self, step: int, indices: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        """Train on one batch."""
        self.set_schedule(step)
        return self.run(indices, self.phase(step))

    @abstractmethod
    def phase(self, step: int) -> Hashable:
        """The phase a step belongs to."""

    @abstractmethod
    def set_schedule(self, step: int) -> None:
        """Put the numbers that depend on the step where `run` finds them."""

    @abstractmethod
    def run(self, indices: Int[Tensor, " B"], phase: Hashable) -> Float[Tensor, ""]:
        """Everything of a step that does not depend on its number."""


class GraphStep:
    """An eager step recorded once a phase as a CUDA graph and replayed: no host work in between."""

    EAGER_STEPS = 3  # before capture, so that lazily created state exists

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
    """The step as it runs best there."""
    return GraphStep(eager) if device.type == "cuda" else eager
