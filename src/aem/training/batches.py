"""Which rows a step sees, as a pure function of the seed and the step."""

import torch
from jaxtyping import Int
from torch import Tensor


class Batches:
    """Epoch after epoch in fresh random order; a step may straddle two epochs.

    Being a function of (seed, step) it has no state to save, and a resumed run sees the same rows.
    """

    def __init__(self, rows: int, batch_size: int, seed: int, device: torch.device) -> None:
        self.rows, self.batch_size, self.seed, self.device = rows, batch_size, seed, device
        self._orders: dict[int, Tensor] = {}

    def indices(self, step: int) -> Int[Tensor, " B"]:
        """Row numbers of the step's batch."""
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
            # Only the current epoch and the one before it can still be asked for by one batch.
            self._orders = {e: o for e, o in self._orders.items() if e == epoch - 1}
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
            order = torch.randperm(self.rows, generator=generator)
            self._orders[epoch] = order.to(self.device)
        return self._orders[epoch]
