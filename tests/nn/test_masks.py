import pytest
import torch

from aem.errors import AemError
from aem.nn.masks import MaskedLinear, hidden_degrees


@pytest.mark.parametrize(
    ("features", "hidden"), [(2, 2), (2, 9), (3, 8), (6, 6), (6, 7), (63, 512)]
)
def test_degrees_are_those_of_the_paper_in_order(features: int, hidden: int) -> None:
    paper = sorted((k - 1) % (features - 1) + 1 for k in range(1, hidden + 1))
    assert hidden_degrees(features, hidden).tolist() == paper


@pytest.mark.parametrize(("features", "hidden"), [(1, 1), (1, 5), (2, 2), (4, 4), (5, 13)])
def test_a_context_adds_units_that_see_it_alone(features: int, hidden: int) -> None:
    degrees = hidden_degrees(features, hidden, conditional=True)
    counts = torch.bincount(degrees, minlength=features)
    assert len(counts) == features, "degrees 0 … D − 1"
    assert counts.min() >= 1 and counts.max() - counts.min() <= 1
    assert torch.equal(degrees, degrees.sort().values)


def test_one_feature_has_no_inputs_to_see() -> None:
    assert hidden_degrees(1, 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("conditional", [False, True])
def test_too_few_units_are_refused_with_the_reason(conditional: bool) -> None:
    with pytest.raises(AemError, match=r"hidden width 4 is below the number of features 5: some"):
        hidden_degrees(5, 4, conditional=conditional)


@pytest.mark.parametrize("strict", [False, True])
def test_masked_layer_connects_what_degrees_allow(strict: bool) -> None:
    inputs, outputs = torch.tensor([1, 2, 3]), torch.tensor([1, 1, 2, 3])
    layer = MaskedLinear(inputs, outputs, strict=strict)
    torch.nn.init.ones_(layer.weight)
    jacobian = torch.autograd.functional.jacobian(layer, torch.zeros(3))
    for o, out in enumerate(outputs):
        for i, inp in enumerate(inputs):
            allowed = out > inp if strict else out >= inp
            assert jacobian[o, i] == float(allowed)
