"""A batch cut into shards, each differentiated by one thread.

How a batch is cut depends on its size alone, each shard draws from a random stream of its own, and
gradients are added in the shards' order. So a step has the same bits whatever the number of
threads.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.randomness import drawing_from, seeds
from aem.base.threads import spread

ROWS = 128  # of a shard: fewer would cost more in overhead than a second thread gains

Gradients = Sequence[Tensor | None]


def differentiate(
    loss: Callable[[slice], Float[Tensor, ""]], rows: int, parameters: Sequence[Tensor]
) -> tuple[Float[Tensor, ""], Gradients]:
    """Return the sum of the losses of all shards, and its gradient.

    `loss` gets the slice of the batch's rows that a shard consists of.
    """
    starts = range(0, rows, ROWS)

    def shard(start_and_seed: tuple[int, int]) -> tuple[Tensor, Gradients]:
        start, seed = start_and_seed
        with drawing_from(seed):
            value = loss(slice(start, min(start + ROWS, rows)))
            return value.detach(), torch.autograd.grad(value, parameters, allow_unused=True)

    value = torch.zeros(())
    total: Gradients = [None] * len(parameters)
    for own, gradients in spread(shard, zip(starts, seeds(len(starts)), strict=True)):
        value += own
        total = _added(total, gradients)
    return value, total


@torch.no_grad()
def _added(total: Gradients, more: Gradients) -> list[Tensor | None]:
    """Add gradients in place, of which some may not exist."""
    both = [(a, b) for a, b in zip(total, more, strict=True) if a is not None and b is not None]
    if both:
        torch._foreach_add_([a for a, _ in both], [b for _, b in both])
    return [b if a is None else a for a, b in zip(total, more, strict=True)]
