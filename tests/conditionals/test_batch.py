import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from aem import AEM, ModelConfig
from aem.conditionals.batch import DEPTH, EnergyForm


def model(energy: EnergyForm = "relative", activation: str = "relu", frequencies: int = 3) -> AEM:
    config = ModelConfig(
        features=2,
        hidden=8,
        blocks=1,
        gamma=4,
        energy=energy,
        energy_hidden=16,
        energy_blocks=2,
        energy_activation="tanh" if activation == "tanh" else "relu",
        components=3,
        frequencies=frequencies,
    )
    return AEM(config, frequencies=torch.rand(2, frequencies) * 100).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("size", [1.0, 1e2, 1e4])
def test_relative_weights_stay_in_their_range(
    randomise: Callable[[nn.Module], None], size: float, activation: str, dtype: torch.dtype
) -> None:
    """Whatever the network: e^(−M) ≤ w ≤ 1, so that Z exists and no row falls without end."""
    x = torch.cat((torch.linspace(-50, 50, 201), torch.tensor([1e4, -1e4, 1e30, -1e30])))
    lowest, highest = math.inf, -math.inf
    for _ in range(10):
        aem = model(activation=activation)
        randomise(aem.energy)
        with torch.no_grad():
            for parameter in aem.energy.parameters():
                parameter.mul_(size)
            aem.to(dtype)
            log_w = aem.conditionals(torch.randn(5, 2, dtype=dtype)).log_weight(
                x.to(dtype).expand(5, 2, -1)
            )
        assert not log_w.isnan().any()
        lowest, highest = min(lowest, float(log_w.min())), max(highest, float(log_w.max()))
    assert lowest >= -DEPTH * (1 + 1e-6) and highest <= 0
    if size == 1e4:
        assert lowest < -0.99 * DEPTH and highest > -1e-3, "and the whole range is used"


@pytest.mark.parametrize("size", [1e30, -1e30, 3e38])
def test_enormous_values_are_scored_without_nan(size: float) -> None:
    aem = model()
    z = torch.tensor([[size, 0.0], [0.0, size]])
    conditionals = aem.conditionals(z)
    assert conditionals.log_weight(z[..., None]).isfinite().all()
    log_q = conditionals.proposal.log_prob(z[..., None])[..., 0]
    assert not log_q.isnan().any()
    assert log_q[1, 0].isfinite() and log_q[0, 1].isfinite(), "the other feature keeps its density"


@pytest.mark.parametrize("frequencies", [0, 3])
@pytest.mark.parametrize("energy", ["relative", "literal"])
def test_flattened_and_selected_conditionals_are_the_same(
    energy: EnergyForm, frequencies: int
) -> None:
    aem = model(energy, frequencies=frequencies).double()
    conditionals = aem.conditionals(torch.randn(4, 2, dtype=torch.float64))
    x = torch.randn(4, 2, 5, dtype=torch.float64)
    index = torch.tensor([7, 0, 3, 3])
    some = conditionals.flatten().select(index)
    rows = x.reshape(8, 5)[index]
    expected = conditionals.log_weight(x).reshape(8, 5)[index]
    torch.testing.assert_close(some.log_weight(rows), expected, rtol=1e-12, atol=1e-12)
    expected = conditionals.proposal.log_prob(x).reshape(8, 5)[index]
    torch.testing.assert_close(some.proposal.log_prob(rows), expected, rtol=1e-12, atol=1e-12)
