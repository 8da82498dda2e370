import itertools
import math

import pytest
import torch

from aem.config import ModelConfig
from aem.errors import AemError
from aem.evaluation.kde import KDE, best_proposal_weight, fit_kde, log_components, mix
from aem.model.aem import AEM
from aem.model.transforms.affine import Affine

SMALL = ModelConfig(
    features=2, hidden=16, blocks=1, gamma=8, energy_hidden=16, energy_blocks=1, components=3
)


@pytest.fixture(scope="module")
def model() -> AEM:
    """A fresh model whose energy is turned up until it matters, in units of its own."""
    torch.manual_seed(0)
    model = AEM(SMALL, standardisation=Affine(torch.tensor([3.0, -1.0]), torch.tensor([2.0, 0.5])))
    model.embedding.frequencies.copy_(torch.linspace(1, 4, SMALL.frequencies).repeat(2, 1))
    with torch.no_grad():
        model.energy.final.weight.mul_(10)
    return model.eval()


@pytest.fixture(scope="module")
def rows(model: AEM) -> torch.Tensor:
    torch.manual_seed(1)
    drawn: torch.Tensor = model().sample((200,))
    return drawn


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("column", [0, 1])
def test_it_integrates_to_one(model: AEM, rows: torch.Tensor, alpha: float, column: int) -> None:
    grid = torch.linspace(-12, 12, 6001, dtype=torch.float64)
    x = rows[:1].double().repeat(len(grid), 1)
    x[:, column] = model.standardisation.inverse(grid[:, None].expand(-1, 2))[:, column]
    density = KDE(0.05, alpha, samples=100).log_prob(model.in_double(), x)[:, column].exp()
    integral = torch.trapezoid(density, x[:, column])
    assert abs(float(integral) - 1) < 1e-6


def test_all_weight_on_the_proposal_is_the_proposal(model: AEM, rows: torch.Tensor) -> None:
    log_q, _ = log_components(model, rows, bandwidths=(0.1,), samples=10)
    assert torch.equal(KDE(0.1, 1.0, samples=10).log_prob(model, rows), log_q)
    scores = model().scores(rows[:20].double())
    torch.testing.assert_close(log_q[:20], scores.log_proposal, atol=1e-4, rtol=0)


def test_it_approaches_the_aem_as_samples_grow(model: AEM, rows: torch.Tensor) -> None:
    """Row by row, with kernels that narrow as they grow in number."""
    exact = model().scores(rows[:100].double()).log_prob.sum(-1)
    errors = []
    for samples, bandwidth in ((30, 0.25), (300, 0.1), (3000, 0.04)):
        log_prob = KDE(bandwidth, 1e-4, samples).log_prob(model, rows[:100]).sum(-1)
        errors.append(float((log_prob - exact).abs().mean()))
    assert all(more > 1.5 * less for more, less in itertools.pairwise(errors)), errors
    assert errors[-1] < 0.03


def test_the_fit_beats_both_ends_and_its_neighbours(model: AEM, rows: torch.Tensor) -> None:
    # Rows of which a half comes from the proposal: then it has a part to play.
    rows = torch.cat((rows, model().sample((len(rows),), method="proposal")))
    fitted = fit_kde(model, rows, samples=300)

    def score(bandwidth: float, alpha: float) -> float:
        kde = KDE(bandwidth, alpha, fitted.samples)
        return float(kde.log_prob(model, rows).sum(-1).mean())

    h, alpha = fitted.bandwidth, fitted.proposal_weight
    assert 0.1 < alpha < 0.9
    best = score(h, alpha)
    for other in ((h, 1.0), (h, 1e-6), (h, 0.7 * alpha), (h / 1.5, alpha), (h * 1.5, alpha)):
        assert best > score(*other)


def test_several_bandwidths_in_one_pass_are_the_same_as_one_by_one(
    model: AEM, rows: torch.Tensor
) -> None:
    widths = (1.0, 0.1, 0.001)
    _, together = log_components(model, rows[:10], bandwidths=widths, samples=200)
    for m, h in enumerate(widths):
        _, alone = log_components(model, rows[:10], bandwidths=(h,), samples=200)
        torch.testing.assert_close(together[m], alone[0])


def test_one_density_whatever_the_batch_the_order_and_the_memory(
    model: AEM, rows: torch.Tensor
) -> None:
    kde, double = KDE(0.05, 0.1, samples=500), model.in_double()
    whole = kde.log_prob(double, rows[:20])
    torch.testing.assert_close(kde.log_prob(double, rows[:20].flip(0)).flip(0), whole)
    torch.testing.assert_close(kde.log_prob(double, rows[3:4])[0], whole[3])
    torch.testing.assert_close(kde.log_prob(double, rows[:20], memory=2**16), whole)
    other = KDE(0.05, 0.1, samples=500, seed=1).log_prob(double, rows[:20])
    assert not torch.allclose(other, whole)


def test_the_mixing_weight_is_where_the_likelihood_is_greatest() -> None:
    log_q, log_k = torch.randn(2, 500, dtype=torch.float64)
    alpha = best_proposal_weight(log_q, log_k)
    grid = torch.linspace(0.01, 0.99, 99)
    scores = torch.stack([mix(log_q, log_k, float(a)).mean() for a in grid])
    assert abs(alpha - float(grid[scores.argmax()])) <= 0.01


def test_the_mixing_weight_keeps_a_floor_and_reaches_one() -> None:
    log_q = torch.zeros(99, dtype=torch.float64)
    assert math.isclose(best_proposal_weight(log_q, log_q + 5), 0.01, rel_tol=1e-6)
    assert math.isclose(best_proposal_weight(log_q, log_q - 5), 1.0, rel_tol=1e-6)
    # Kernels that are impossible, or infinitely better, at some values.
    log_k = log_q.clone()
    log_k[0], log_k[1] = -torch.inf, 1000.0
    assert 0.01 <= best_proposal_weight(log_q, log_k) <= 1


def test_bad_settings(model: AEM, rows: torch.Tensor) -> None:
    for bandwidth, alpha, samples in ((0.0, 0.5, 10), (0.1, 1.5, 10), (0.1, 0.5, 0)):
        with pytest.raises(AemError):
            KDE(bandwidth, alpha, samples)
    with pytest.raises(AemError, match="validation rows"):
        fit_kde(model, rows[:0])
