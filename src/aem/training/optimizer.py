"""The optimiser: gradient clipping, AdamW and the running average of the weights.

It works on one vector of all parameters (`aem.nn.kernels.packing`), either by PyTorch's AdamW, which
is the reference, or on a GPU with Triton by one kernel that updates the same state.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aem.errors import AemError
from aem.nn.kernels import TRITON, processor
from aem.nn.kernels.packing import Packed

BETAS, EPSILON = (0.9, 0.999), 1e-8


@runtime_checkable
class Rates(Protocol):
    """The settings of the optimiser."""

    @property
    def weight_decay(self) -> float:
        """Decoupled weight decay."""

    @property
    def clip(self) -> float:
        """Largest norm of a gradient; zero for no clipping."""


class Descent:
    """Updates the parameters of a model by AdamW, and their average in a second model.

    Parameters whose names start with `late` form a separate group. As long as they have no gradient
    (the energy network, while the proposal warms up) they stay as they are, and Adam counts its
    steps from their first gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        average: nn.Module,
        rates: Rates,
        *,
        late: str = "energy.",
        half: bool = False,
    ) -> None:
        self.rates = rates
        self.memory = Packed(_groups(model, late), half=half)
        self.averages = Packed(_groups(average, late))
        device = self.memory.weights.device
        self.fused = TRITON and device.type == "cuda"
        # Tensors on the device, so that a captured CUDA graph reads new values.
        self.rate = torch.zeros((), device=device)
        self.keep = torch.zeros((), device=device)
        self.vectors = [nn.Parameter(self.memory.weights[part]) for part in self.memory.slices]
        cuda = device.type == "cuda"
        self.optimiser = torch.optim.AdamW(
            self.vectors,
            lr=self.rate if cuda else 0.0,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=rates.weight_decay,
            fused=True,
            capturable=cuda,
        )
        for vector in self.vectors:
            moments = {name: torch.zeros_like(vector) for name in ("exp_avg", "exp_avg_sq")}
            self.optimiser.state[vector] = {"step": torch.zeros((), device=device), **moments}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimiser."""
        return self.optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the optimiser, after the weights were restored."""
        sizes = [len(kept["exp_avg"]) for kept in state["state"].values()]
        if sizes != [len(vector) for vector in self.vectors]:
            raise AemError("the optimiser's state belongs to a model of another size")
        rates = [group["lr"] for group in self.optimiser.param_groups]
        self.optimiser.load_state_dict(state)
        for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
            group["lr"] = rate  # a tensor that a captured graph reads must stay the same one
        self.memory.refresh()

    def schedule(self, rate: float, keep: float) -> None:
        """Set the step's learning rate, and the share of itself that the average keeps."""
        self.rate.fill_(rate)
        self.keep.fill_(keep)
        if not self.rate.is_cuda:
            for group in self.optimiser.param_groups:
                group["lr"] = rate

    def __call__(self, loss: Float[Tensor, ""]) -> None:
        """Compute the gradient of a loss, and take a step."""
        self.follow(torch.autograd.grad(loss, self.memory.parameters, allow_unused=True))

    def follow(self, found: Sequence[Tensor | None]) -> None:
        """Take a step with a gradient; None stands for parameters without one."""
        memory = self.memory
        with torch.no_grad():
            memory.gather(found)
            used = [any(g is not None for g in found[group]) for group in memory.groups]
            if self.fused:
                self._update_by_kernel(used)
            else:
                self._update(used)

    def _update(self, used: Sequence[bool]) -> None:
        gradients, clip = self.memory.gradients, self.rates.clip
        if clip:
            norm = torch.linalg.vector_norm(gradients)
            gradients.mul_((clip / (norm + 1e-6)).clamp(max=1.0))
        for vector, part, uses in zip(self.vectors, self.memory.slices, used, strict=True):
            vector.grad = gradients[part] if uses else None
        self.optimiser.step()
        self.averages.weights.lerp_(self.memory.weights, 1 - self.keep)
        self.memory.refresh()

    def _update_by_kernel(self, used: Sequence[bool]) -> None:
        from aem.nn.kernels.update import update

        memory, clip = self.memory, self.rates.clip
        norm = torch.linalg.vector_norm(memory.gradients) if clip else self.rate
        states = [self.optimiser.state[vector] for vector in self.vectors]
        torch._foreach_add_([s["step"] for s, uses in zip(states, used, strict=True) if uses], 1)
        for vector, state, part, uses in zip(
            self.vectors, states, memory.slices, used, strict=True
        ):
            if not uses:
                continue
            update(
                vector.detach(),
                memory.gradients[part],
                state["exp_avg"],
                state["exp_avg_sq"],
                self.averages.weights[part],
                None if memory.half is None else memory.half[part],
                norm=norm,
                rate=self.rate,
                keep=self.keep,
                step=state["step"],
                clip=clip,
                decay=self.rates.weight_decay,
                betas=BETAS,
                epsilon=EPSILON,
            )

    def finite(self) -> bool:
        """Return whether all weights are finite."""
        return bool(self.memory.weights.isfinite().all())

    def release(self) -> None:
        """Give each parameter memory of its own again, and free what steps have kept."""
        self.memory.release()
        self.averages.release()
        processor.release()


def _groups(model: nn.Module, late: str) -> list[list[nn.Parameter]]:
    """Return the parameters in two groups: those whose names start with `late` come second."""
    groups: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    for name, parameter in model.named_parameters():
        groups[name.startswith(late)].append(parameter)
    return [group for group in groups if group]
