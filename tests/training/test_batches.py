import pytest
import torch

from aem.training.batches import Batches

CPU = torch.device("cpu")


def stream(rows: int, batch_size: int, steps: int, seed: int = 0) -> torch.Tensor:
    batches = Batches(rows, batch_size, seed, CPU)
    parts = [batches.indices(step) for step in range(steps)]
    assert all(len(part) == batch_size for part in parts)
    return torch.cat(parts)


@pytest.mark.parametrize(
    ("rows", "batch_size"), [(20, 5), (23, 5), (7, 7), (5, 12), (1, 3), (13, 1)]
)
def test_every_epoch_visits_every_row_once_in_a_new_order(rows: int, batch_size: int) -> None:
    epochs = 5
    seen = stream(rows, batch_size, steps=-(-epochs * rows // batch_size))[: epochs * rows]
    orders = seen.reshape(epochs, rows)
    assert torch.equal(orders.sort(-1).values, torch.arange(rows).expand(epochs, rows))
    if rows > 4:
        assert len({tuple(order.tolist()) for order in orders}) == epochs


def test_a_step_is_the_same_whenever_it_is_asked_for() -> None:
    """Resuming asks for step 37 first; nothing may depend on the steps before."""
    together = stream(23, 5, 60).reshape(60, 5)
    for step in (37, 0, 59, 4, 4):
        assert torch.equal(Batches(23, 5, 0, CPU).indices(step), together[step])
    again = Batches(23, 5, 0, CPU)
    for step in (37, 0, 59, 4, 4):
        assert torch.equal(again.indices(step), together[step])


def test_seeds_give_other_orders() -> None:
    assert not torch.equal(stream(100, 10, 10, seed=0), stream(100, 10, 10, seed=1))
