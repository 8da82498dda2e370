from collections.abc import Callable

import pytest
import torch
from torch import nn

from aem.nn.features import FourierFeatures
from aem.nn.incremental import incremental
from aem.nn.made import MADE
from aem.nn.resmade import ResMADE


@pytest.mark.parametrize("kind", [ResMADE, MADE])
@pytest.mark.parametrize("activation", ["relu", "tanh", "softplus"])
@pytest.mark.parametrize("context", [0, 3])
@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize(
    ("features", "hidden"), [(1, 1), (1, 4), (2, 2), (5, 5), (5, 23), (16, 40)]
)
def test_one_feature_at_a_time_equals_the_full_pass(
    randomise: Callable[[nn.Module], None],
    features: int,
    hidden: int,
    blocks: int,
    context: int,
    activation: str,
    kind: type[MADE],
) -> None:
    net = kind(
        FourierFeatures(torch.rand(features, 2) * 5),
        outputs=4,
        hidden=hidden,
        blocks=blocks,
        activation=activation,
        dropout=0.3,
        context_features=context,
    )
    randomise(net)
    net = net.double().eval()
    rows = 7
    x = torch.randn(rows, features, dtype=torch.float64)
    x[0] = 1e200  # beyond the reach of the networks, in either way of computing
    c = torch.randn(rows, context, dtype=torch.float64) if context else None
    with torch.no_grad():
        full = net(x, c)
        steps = incremental(net, rows, c)
        for d in range(features):
            difference = (steps.outputs() - full[:, d]).abs() / full[:, d].abs().clamp_min(1)
            assert difference.max() < 1e-12
            steps.push(x[:, d])
