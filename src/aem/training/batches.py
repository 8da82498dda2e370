"""The rows of each training step, as a function of the seed and the step alone."""

import torch
from jaxtyping import Int
from torch import Tensor


class Batches:
    """Shuffles the rows anew in every epoch; a batch may contain rows of two epochs.

    A batch depends on seed and step only. A continued run therefore sees the same rows, without any
    state in the checkpoint.
    """

    def __init__(self, rows: int, batch_size: int, seed: int, device: torch.device) -> None:
        self.rows, self.batch_size, self.seed, self.device = rows, batch_size, seed, device
        self._orders: dict[int, Tensor] = {}

    def indices(self, step: int) -> Int[Tensor, " B"]:
        """Return the row numbers of a step's batch."""
        first = step * self.batch_size
        last = first + self.batch_size
        parts = []
        while first < last:
            epoch, offset = divmod(first, self.rows)
            take = min(self.rows - offset, last - first)
            parts.append(self._order(epoch)[offset : offset + take])
            first += take
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            # One batch needs at most the current epoch and the one before.
            self._orders = {e: o for e, o in self._orders.items() if e == epoch - 1}
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
            order = torch.randperm(self.rows, generator=generator)
            self._orders[epoch] = order.to(self.device)
        return self._orders[epoch]
