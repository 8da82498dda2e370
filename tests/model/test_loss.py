"""What a loop of one's own minimises: the objective of `fit`, in the units of the data."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aem import AEM, AemError, ModelConfig, TrainConfig, fit
from aem.data.synthetic import Spirals
from aem.training.objective import objective
from tests.support.rough import rough_model, rows_of

SPIRALS = Spirals()
PLAN = TrainConfig(steps=150, batch_size=128, learning_rate=5e-3, device="cpu", validate_every=150)


@pytest.mark.parametrize(
    "changes", [{}, {"estimator": "importance"}, {"levelling": 0.0}, {"nodes": 4}]
)
@pytest.mark.parametrize("energy", ["relative", "literal"])
def test_it_is_the_objective_of_fit(energy: Any, changes: dict[str, Any]) -> None:
    model = rough_model(energy, context=2, features=3)
    rows, context = rows_of(model, 6).float(), torch.randn(6, 2)
    z, own = model.standardise(rows), model.standardise_context(context)
    config = replace(TrainConfig(), **changes)
    torch.manual_seed(1)
    expected = objective(model, z, own, config) - 2 * model.standardisation.log_slope.sum()
    torch.manual_seed(1)
    torch.testing.assert_close(model.loss(rows, context, config=config), expected)


def test_reductions_and_shapes() -> None:
    model = rough_model(context=2)
    rows, context = rows_of(model, 6).float().reshape(2, 3, 2), torch.randn(3, 2)

    def loss(reduction: Any) -> Tensor:
        torch.manual_seed(1)
        return model.loss(rows, context, reduction=reduction)

    each = loss("none")
    assert each.shape == (2, 3)
    torch.testing.assert_close(loss("sum"), each.sum())
    torch.testing.assert_close(loss("mean"), each.mean())
    assert model.loss(rows.numpy(), context.numpy()).shape == ()
    with pytest.raises(AemError, match="unknown reduction 'median'; known: mean, sum, none"):
        loss("median")
    with pytest.raises(AemError, match="no gradient in the rows"):
        model.loss(rows.requires_grad_(), context)
    with pytest.raises(AemError, match="needs a context"):
        model.loss(rows.detach())


def test_units_change_it_by_a_constant() -> None:
    """Twice, as it holds two log densities."""
    x = np.random.default_rng(0).normal(size=(200, 2))
    found = []
    for scale in (1.0, 1024.0):
        torch.manual_seed(0)
        model = AEM.for_data(
            ModelConfig(hidden=8, blocks=1, energy_hidden=8, energy_blocks=1), x * scale
        )
        torch.manual_seed(0)
        found.append(float(model.loss(x * scale)))
    assert found[1] - found[0] == pytest.approx(4 * np.log(1024), abs=1e-3)


def test_it_trains_everything_and_a_network_of_the_context(
    randomise: Callable[[nn.Module], None],
) -> None:
    config = ModelConfig(
        features=2,
        context_features=2,
        hidden=16,
        blocks=1,
        gamma=4,
        energy_hidden=16,
        energy_blocks=1,
    )
    model = AEM(config).train()
    randomise(model)
    embedding = nn.Linear(5, 2)
    model.loss(torch.randn(8, 2), embedding(torch.randn(8, 5))).backward()
    for parameter in (*model.parameters(), *embedding.parameters()):
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all())
    proposal = model.arnn.biases().shape[1] - config.gamma
    assert model.arnn.final.bias.grad is not None
    own = model.arnn.final.bias.grad.view(2, -1)
    assert float(own[:, :proposal].abs().min()) > 0 < float(own[:, proposal:].abs().min())
    assert float(embedding.weight.grad.abs().min()) > 0  # type: ignore[union-attr]


def loop(model: AEM, train: Tensor) -> None:
    """The loop of the documentation."""
    optimiser = torch.optim.Adam(model.parameters(), lr=PLAN.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, PLAN.steps)
    model.train()
    for _ in range(PLAN.steps):
        optimiser.zero_grad()
        model.loss(train[torch.randint(len(train), (PLAN.batch_size,))]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        schedule.step()
    model.eval()


def test_a_plain_loop_reaches_the_likelihood_of_fit() -> None:
    """On the spirals, in equal steps."""
    train, validation = SPIRALS.sample(5000, seed=0), SPIRALS.sample(300, seed=1)
    test = torch.from_numpy(SPIRALS.sample(500, seed=2))
    settings = ModelConfig(hidden=32, blocks=1, energy_hidden=16, energy_blocks=1, frequencies=4)

    def score(trained: Callable[[AEM], object]) -> float:
        torch.manual_seed(0)
        model = AEM.for_data(settings, train)
        before = float(model().log_prob(test).mean())
        trained(model)
        gain: float = float(model.eval()().log_prob(test).mean()) - before
        return gain

    ours = score(lambda model: fit(model, train, validation, PLAN, quiet=True))
    own = score(lambda model: loop(model, torch.from_numpy(train)))
    assert ours > 0.3
    assert own == pytest.approx(ours, abs=0.08)
