"""What a score computes, and what it does not."""

from typing import Any

import pytest
import torch
from torch import Tensor

from aem.conditionals import normalizer
from aem.nn.energy import EnergyNetwork
from tests.support.rough import rough_model, rows_of


def test_a_model_without_an_energy_evaluates_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scores are its proposal's, for one energy in all, which is the same everywhere."""
    model = rough_model(features=3)
    model.flatten()
    nodes = []
    original = EnergyNetwork.at

    def counted(self: EnergyNetwork, x: Tensor, *others: Tensor) -> Tensor:
        nodes.append(x.numel())
        return original(self, x, *others)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was integrated")

    monkeypatch.setattr(EnergyNetwork, "at", counted)
    monkeypatch.setattr(normalizer, "integrate", refuse)
    rows = rows_of(model, 50)
    scores = model().scores(rows)
    assert sum(nodes) == 1
    assert torch.equal(scores.log_prob, scores.log_proposal)
    assert int(scores.nodes.sum()) == 0 and bool(scores.converged.all())
    expected = model.in_double().conditionals(model.in_double().standardise(rows)).flatten()
    weight = expected.log_weight(model.in_double().standardise(rows).reshape(-1, 1))
    assert torch.equal(scores.log_z, weight.reshape(50, 3))
    assert model().scores(rows[:0]).log_z.shape == (0, 3)
