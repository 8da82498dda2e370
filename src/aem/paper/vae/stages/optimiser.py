"""Adam, clipping and averaging for networks whose parameters keep their own memory layout.

Convolutions want channels last, which the flat memory of `aem.training.optimizer` would undo.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from aem.paper.vae.config import StageConfig


def make_optimiser(
    model: torch.nn.Module, config: StageConfig, device: torch.device
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
