"""One step down a gradient: clipping, Adam with decoupled decay, the running average of the weights.

All of it works on one long vector of parameters (`aem.nn.kernels.packing`): by PyTorch's own Adam,
which is the reference, or on a GPU with Triton by one kernel on the same state.
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
    """What a descent is made from."""

    @property
    def weight_decay(self) -> float:
        """Decoupled from the gradient."""

    @property
    def clip(self) -> float:
        """The longest a gradient may be; zero for any length."""


class Descent:
    """Trains the parameters of a model and averages them into another.

    Parameters whose names start with `late` form a group of their own: while they have no gradient
    (the energy network, as long as the proposal warms up) they are left as they are, and when they
    get one their Adam starts afresh.
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
        # On a GPU these are read there: a captured graph sees new values without recapture.
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
        """The optimiser's."""
        return self.optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put it back; the weights may have been put back as well."""
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
        """One step down the gradient of a loss."""
        self.follow(torch.autograd.grad(loss, self.memory.parameters, allow_unused=True))

    def follow(self, found: Sequence[Tensor | None]) -> None:
        """One step down a gradient."""
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
        """Whether all weights are."""
        return bool(self.memory.weights.isfinite().all())

    def release(self) -> None:
        """Give the parameters memory of their own again, and back what steps handed on."""
        self.memory.release()
        self.averages.release()
        processor.release()


def _groups(model: nn.Module, late: str) -> list[list[nn.Parameter]]:
    """The early ones and the late ones, in their order."""
    groups: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    for name, parameter in model.named_parameters():
        groups[name.startswith(late)].append(parameter)
    return [group for group in groups if group]
