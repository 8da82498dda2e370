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
    """Return Adam with decoupled weight decay; on a GPU its rate is on the device, for graph capture.

    Parameters
    ----------
    model
        whose parameters it moves.
    config
        learning rate and weight decay.
    device
        where the model is.
    """
    cuda = device.type == "cuda"
    rate = torch.tensor(config.learning_rate, device=device) if cuda else config.learning_rate
    return torch.optim.AdamW(
        model.parameters(), lr=rate, weight_decay=config.weight_decay, fused=True, capturable=cuda
    )


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of an optimiser, which a captured graph may read.

    Parameters
    ----------
    optimiser
        what `make_optimiser` returned.
    rate
        the learning rate of the next step.
    """
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
    """Compute the gradient of a loss, and take a step.

    Parameters
    ----------
    loss
        what is made smaller.
    optimiser
        takes the step.
    parameters
        those whose gradients are clipped together.
    clip
        the largest norm of the gradient; zero for none.
    """
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(parameters, clip)
    optimiser.step()


@torch.no_grad()
def update_average(
    averages: list[Tensor], parameters: list[torch.nn.Parameter], keep: Float[Tensor, ""]
) -> None:
    """Move averages of the weights towards the present weights.

    Parameters
    ----------
    averages
        the averages, in the order of the parameters.
    parameters
        the present weights.
    keep
        the share of themselves that averages keep.
    """
    torch._foreach_mul_(averages, keep)
    fresh = torch._foreach_mul([p.detach() for p in parameters], 1 - keep)
    torch._foreach_add_(averages, fresh)
