"""The textbook is a fair opponent only if it is right: the same model as ours, another program."""

import math

import pytest
import torch
from torch import Tensor

from aem import AEM, ModelConfig
from aem.conditionals.estimates import log_prob_estimate
from aem.nn.resmade import ResMADE
from benchmarks.speed.textbook import Mixture, TextbookAEM, TextbookTraining, degrees


def twins(features: int) -> tuple[TextbookAEM, AEM]:
    """A textbook model and ours in the paper's literal form, with the same weights."""
    textbook = TextbookAEM(
        features,
        hidden=24,
        blocks=2,
        context=5,
        energy_hidden=12,
        energy_blocks=2,
        components=3,
    ).eval()
    with torch.no_grad():
        # An energy that grows in both tails and a proposal wide enough for it: else Ẑ has no variance.
        textbook.energy.final.weight.abs_().add_(1.0)
        for name, parameter in textbook.energy.blocks.named_parameters():
            if name.endswith("second.weight"):
                parameter.mul_(0.1)
        textbook.arnn.final.bias.view(features, -1)[:, 6:9] += 2.0
    config = ModelConfig(
        features=features,
        hidden=24,
        blocks=2,
        gamma=5,
        energy="literal",
        energy_hidden=12,
        energy_blocks=2,
        components=3,
        frequencies=0,
    )
    ours = AEM(config).eval()
    order = degrees(features, 24).argsort(stable=True)  # our units are sorted by degree
    theirs = textbook.arnn
    arnn = ours.arnn
    assert isinstance(arnn, ResMADE)
    with torch.no_grad():
        arnn.initial.weight.copy_(theirs.initial.weight[order])
        arnn.initial.bias.copy_(theirs.initial.bias[order])
        arnn.final.weight.copy_(theirs.final.weight[:, order])
        arnn.final.bias.copy_(theirs.final.bias)
        for mine, block in zip(arnn.residual_blocks(), theirs.blocks, strict=True):
            for layer in ("first", "second"):
                target, source = getattr(mine, layer), getattr(block, layer)
                target.weight.copy_(source.weight[order][:, order])
                target.bias.copy_(source.bias[order])
        ours.energy.from_value.weight.copy_(textbook.energy.initial.weight[:, :1])
        ours.energy.from_context.weight.copy_(textbook.energy.initial.weight[:, 1:])
        ours.energy.from_context.bias.copy_(textbook.energy.initial.bias)
        ours.energy.final.load_state_dict(textbook.energy.final.state_dict())
        ours.energy.blocks.load_state_dict(textbook.energy.blocks.state_dict())
    return textbook, ours


@pytest.mark.parametrize("features", [1, 2, 7])
def test_same_weights_and_nodes_give_our_literal_log_density(features: int) -> None:
    textbook, ours = twins(features)
    x = torch.randn(9, features)
    proposal, gamma = textbook.conditionals(x)
    nodes = proposal.sample(16)
    found = textbook.log_prob_at(x, proposal, gamma, nodes)

    conditionals = ours.conditionals(x)
    log_q = conditionals.proposal.log_prob(x[..., None])[..., 0]
    log_z = conditionals.log_weight(nodes).logsumexp(-1) - math.log(16)
    expected = log_q + conditionals.log_weight(x[..., None])[..., 0] - log_z
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(proposal.log_prob(x[..., None])[..., 0], log_q)


def test_same_estimate_on_average() -> None:
    textbook, ours = twins(3)
    x = torch.randn(4, 3)
    with torch.no_grad():
        found, log_q = textbook(x, samples=20_000)
        conditionals = ours.conditionals(x)
        expected, expected_q, _ = log_prob_estimate(
            conditionals, x, nodes=20_000, estimator="importance", stratified=False
        )
    torch.testing.assert_close(log_q, expected_q.sum(-1))
    torch.testing.assert_close(found, expected.sum(-1), rtol=0, atol=0.1)


def test_no_gradient_from_log_p_into_the_proposal() -> None:
    textbook, _ = twins(3)
    log_p, _ = textbook(torch.randn(4, 3))
    log_p.sum().backward()
    gradient = textbook.arnn.final.bias.grad
    assert gradient is not None
    phi, gamma = gradient.view(3, -1).tensor_split((9,), -1)
    assert bool((phi == 0).all())
    assert bool((gamma != 0).any())


def toy(rows: int) -> Tensor:
    """Two modes, and a second column that follows the first."""
    first = torch.randn(rows) * 0.3 + torch.where(torch.rand(rows) < 0.5, -1.0, 1.0)
    return torch.stack((first, 0.5 * first + 0.2 * torch.randn(rows)), -1)


def test_training_learns_and_samples_look_like_the_data() -> None:
    model = TextbookAEM(
        2, hidden=32, blocks=1, context=8, energy_hidden=16, energy_blocks=1, components=4
    )
    train = TextbookTraining(model, steps=400, learning_rate=5e-3)
    losses = torch.stack([train(toy(128)) for _ in range(400)])
    assert float(losses[-50:].mean()) < float(losses[:20].mean()) - 1.0
    drawn = model.eval().sample(3000)
    data = toy(100_000)
    assert drawn.shape == (3000, 2)
    torch.testing.assert_close(drawn.mean(0), data.mean(0), rtol=0, atol=0.1)
    torch.testing.assert_close(drawn.T.cov(), data.T.cov(), rtol=0, atol=0.15)


def test_a_score_is_the_estimate_whatever_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = twins(2)
    x = torch.randn(5, 2)
    whole = model.score(x, samples=20_000)
    monkeypatch.setattr("benchmarks.speed.textbook.CHUNK", 4096)
    parts = model.score(x, samples=20_000)
    assert whole.shape == (5,)
    torch.testing.assert_close(whole, parts, rtol=0, atol=0.1)


def test_the_mixture_draws_what_its_density_says() -> None:
    mixture = Mixture(torch.randn(2, 9), 1e-3)
    drawn = mixture.sample(200_000)
    weights = mixture.log_weights.exp()
    mean = (weights * mixture.locs).sum(-1)
    variance = (weights * (mixture.scales**2 + mixture.locs**2)).sum(-1) - mean**2
    torch.testing.assert_close(drawn.mean(-1), mean, rtol=0, atol=0.02)
    torch.testing.assert_close(drawn.var(-1), variance, rtol=0.03, atol=0)
    grid = torch.linspace(-15, 15, 20_001)
    total = torch.trapezoid(mixture.log_prob(grid.expand(2, -1)).exp(), grid)
    torch.testing.assert_close(total, torch.ones(2), rtol=1e-3, atol=0)
