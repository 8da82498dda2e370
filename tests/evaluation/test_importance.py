import copy
import math

import pytest
import torch

from aem.conditionals.normalizer import Quadrature
from aem.config import ModelConfig
from aem.errors import AemError
from aem.evaluation.importance import (
    estimate_log_z,
    importance_scores,
    random_uniforms,
)
from aem.model.aem import AEM
from aem.model.transforms.affine import Affine

SMALL = ModelConfig(
    features=2, hidden=16, blocks=1, gamma=8, energy_hidden=16, energy_blocks=1, components=3
)


@pytest.fixture(scope="module")
def model() -> AEM:
    """A fresh model whose energy is turned up until it matters."""
    torch.manual_seed(0)
    frequencies = torch.linspace(1, 4, SMALL.frequencies).repeat(2, 1)
    model = AEM(SMALL, standardisation=Affine(torch.tensor([3.0, -1.0]), torch.tensor([2.0, 0.5])))
    model.embedding.frequencies.copy_(frequencies)
    with torch.no_grad():
        model.energy.final.weight.mul_(10)
    return model.eval()


@pytest.fixture(scope="module")
def rows(model: AEM) -> torch.Tensor:
    torch.manual_seed(1)
    return model.in_units(torch.randn(8, 2))


def test_strata_hold_one_uniform_each() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [
        random_uniforms(3, nodes, 10, stratified=True, generator=generator)
        for nodes in (range(4), range(4, 10))
    ]
    u = torch.cat(parts, -1)
    assert torch.equal((u * 10).floor(), torch.arange(10.0, dtype=u.dtype).expand(3, 10))


def test_a_flat_energy_is_estimated_without_error(model: AEM, rows: torch.Tensor) -> None:
    flat = AEM(SMALL, standardisation=copy.deepcopy(model.standardisation)).double().eval()
    with torch.no_grad():
        flat.energy.final.weight.zero_()
    exact = flat().scores(rows.double())
    for samples in (1, 7):
        scores = importance_scores(flat, rows, samples=samples)
        torch.testing.assert_close(scores.log_prob, exact.log_prob, atol=1e-9, rtol=0)
        torch.testing.assert_close(scores.log_prob, scores.log_proposal, atol=1e-9, rtol=0)
        assert scores.bias.max() < 1e-9


def test_many_samples_approach_the_quadrature(model: AEM, rows: torch.Tensor) -> None:
    exact = model().scores(rows.double(), Quadrature(tolerance=1e-5))
    for stratified, allowed in ((False, 0.05), (True, 0.002)):
        scores = importance_scores(model, rows, samples=20_000, stratified=stratified)
        assert (scores.log_prob - exact.log_prob).abs().max() < allowed
    torch.testing.assert_close(scores.log_proposal, exact.log_proposal, atol=1e-5, rtol=0)


def test_the_stated_bias_is_the_bias(model: AEM, rows: torch.Tensor) -> None:
    """E log Ẑ − log Z over 20,000 repetitions with 20 samples, to a tenth of itself."""
    double = model.in_double()
    with torch.no_grad():
        one = double.conditionals(double.standardise(rows[:1].double())).flatten()
        many = one.select(torch.ones(20_000, dtype=torch.long))
        generator = torch.Generator().manual_seed(0)
        estimated = estimate_log_z(many, 20, stratified=False, generator=generator)
        u = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
        y = one.proposal.icdf(u.expand(2, -1))
        log_z = one.log_weight(y)[1].logsumexp(0) - math.log(20_000)
    low = log_z - estimated.log_z.mean()
    assert low > 0.005
    assert abs(float(low / estimated.bias.mean()) - 1) < 0.15


def test_a_seed_fixes_the_score(model: AEM, rows: torch.Tensor) -> None:
    first, again = (importance_scores(model, rows, samples=50, seed=3) for _ in range(2))
    assert torch.equal(first.log_prob, again.log_prob)
    other = importance_scores(model, rows, samples=50, seed=4)
    assert not torch.equal(first.log_prob, other.log_prob)


def test_little_memory_is_enough(model: AEM, rows: torch.Tensor) -> None:
    done: list[tuple[str, int, int]] = []
    scores = importance_scores(
        model, rows, samples=5000, stratified=True, memory=2**17, report=lambda *r: done.append(r)
    )
    assert len(done) > 1
    assert done[-1] == ("importance sampling", len(rows), len(rows))
    ample = importance_scores(model, rows, samples=5000, stratified=True)
    torch.testing.assert_close(scores.log_prob, ample.log_prob, atol=0.01, rtol=0)


def test_no_rows_and_no_samples(model: AEM, rows: torch.Tensor) -> None:
    assert importance_scores(model, rows[:0]).log_prob.shape == (0, 2)
    with pytest.raises(AemError, match="at least one sample"):
        importance_scores(model, rows, samples=0)
