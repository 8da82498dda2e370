"""The kernel that follows a gradient, against PyTorch's Adam."""

import pytest
import torch
from tests.support.triton_here import DEVICE, GPU
from torch import nn

from aem.config import TrainConfig
from aem.training.optimizer import Descent


class Two(nn.Module):
    """A part that trains from the start and one that joins later."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.early, self.energy = nn.Linear(50, 41), nn.Linear(41, 1)


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_kernel_and_reference_take_the_same_steps(clip: float) -> None:
    config = TrainConfig(clip=clip, weight_decay=0.1)
    models = [Two().to(DEVICE) for _ in range(4)]
    descents = [
        Descent(models[0], models[1].requires_grad_(False), config, half=True),
        Descent(models[2], models[3].requires_grad_(False), config, half=True),
    ]
    descents[0].fused, descents[1].fused = False, True
    x = torch.randn(64, 50, device=DEVICE)
    for step in range(12):
        for model, descent in zip(models[::2], descents, strict=True):
            descent.schedule(0.01 / (1 + step), 0.9)
            h = model.early(x).tanh()
            late = step >= 5
            descent((model.energy(h) if late else h).square().mean())
        assert bool(descents[1].memory.weights.isfinite().all())
    for a, b in zip(models[:2], models[2:], strict=True):
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(p, q, atol=2e-6, rtol=2e-5)
    half, weights = descents[1].memory.half, descents[1].memory.weights
    assert half is not None
    # The interpreter cuts where the GPU rounds.
    torch.testing.assert_close(half.float(), weights, atol=0, rtol=2.0**-8 if GPU else 2.0**-7)
    counts = [int(s["step"]) for s in descents[1].optimiser.state.values()]
    assert counts == [12, 7]  # the late part began when it first had a gradient
