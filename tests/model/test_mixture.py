"""The Gaussian mixture of all columns, and proposals anchored to it."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

import aem.model.mixture
import aem.tables.fit.mixtures
from aem.base.progress import silent
from aem.conditionals.proposals.anchored import AnchoredHead
from aem.conditionals.proposals.gaussian import GaussianMixture
from aem.config import ModelConfig, TrainConfig
from aem.model.aem import AEM
from aem.model.mixture import JointMixture, MixtureRows, central_rows, fit_mixture
from aem.tables.fit.mixtures import choose_mixture
from aem.tables.fit.starts import ladders
from aem.training.loop import fit, validation_scores

K, D = 3, 4


@pytest.fixture
def joint() -> JointMixture:
    rng = np.random.default_rng(0)
    factors = np.tril(0.3 * rng.normal(size=(K, D, D)), -1) + np.eye(D) * rng.uniform(
        0.3, 1, (K, 1, D)
    )
    return JointMixture(np.log([0.5, 0.3, 0.2]), rng.normal(size=(K, D)), factors)


def head_of(model: AEM) -> AnchoredHead:
    assert isinstance(model.head, AnchoredHead)
    return model.head


def anchored(joint: JointMixture, *, memory: bool = True) -> AEM:
    config = ModelConfig(
        features=D, hidden=16, blocks=1, gamma=2, energy_hidden=4, energy_blocks=1, frequencies=2,
        proposal="anchored", components=K,
    )  # fmt: skip
    model = AEM(config)
    head_of(model).anchor(joint.log_weights, joint.means, joint.factors, memory=memory)
    return model.eval()


def test_log_prob_is_that_of_the_gaussians(joint: JointMixture) -> None:
    z = np.random.default_rng(1).normal(size=(5, D))
    expected = np.log(
        sum(
            np.exp(w) * multivariate_normal(m, f @ f.T).pdf(z)
            for w, m, f in zip(joint.log_weights, joint.means, joint.factors, strict=True)
        )
    )
    np.testing.assert_allclose(joint.log_prob(z), expected, rtol=1e-10)


def test_expectation_maximisation_finds_two_clusters() -> None:
    rng = np.random.default_rng(0)
    z = np.concatenate((rng.normal(-3, 0.5, (300, 2)), rng.normal(3, 1.0, (100, 2))))
    mixture = fit_mixture(z, 2, prior=1.0, seed=0)
    order = np.argsort(mixture.means[:, 0])
    np.testing.assert_allclose(np.exp(mixture.log_weights[order]), [0.75, 0.25], atol=0.01)
    np.testing.assert_allclose(mixture.means[order, 0], [-3, 3], atol=0.3)
    np.testing.assert_allclose(mixture.factors[order, 0, 0], [0.5, 1.0], atol=0.15)


def test_products_give_what_components_one_by_one_give(
    joint: JointMixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = np.random.default_rng(1).normal(size=(50, D))
    at_once = MixtureRows(z, 0)
    monkeypatch.setattr(aem.model.mixture, "MOST_PRODUCTS", 0)
    one_by_one = MixtureRows(z, 0)
    assert at_once.products is not None
    assert one_by_one.products is None
    every = slice(None)
    terms = at_once.log_densities(joint)(every)
    np.testing.assert_allclose(terms, one_by_one.log_densities(joint)(every), rtol=1e-9)
    shares = np.random.default_rng(2).dirichlet(np.ones(K), size=50)
    both = at_once.moments(shares, every), one_by_one.moments(shares, every)
    for a, b in zip(*both, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_copies_leave_the_density_as_it_is(joint: JointMixture) -> None:
    z = np.random.default_rng(1).normal(size=(5, D))
    wide = joint.with_wide_component(z)
    copied = wide.repeated(3)
    assert len(copied.log_weights) == 3 * K + 1
    np.testing.assert_allclose(copied.log_prob(z), wide.log_prob(z), rtol=1e-12)


def test_without_memory_the_past_does_not_choose_components(joint: JointMixture) -> None:
    z = torch.randn(7, D)
    proposal = anchored(joint, memory=False).conditionals(z).proposal
    expected = torch.from_numpy(joint.log_weights).float().expand(7, D, K)
    assert isinstance(proposal, GaussianMixture)
    torch.testing.assert_close(proposal.log_weights, expected)


def test_a_proposal_trained_alone_gains_on_unseen_rows(joint: JointMixture) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=600)
    x = np.stack((a, a**2 + 0.1 * rng.normal(size=600), a + rng.normal(size=600), a), axis=1)
    x += 0.1 * rng.normal(size=x.shape)
    model = anchored(joint, memory=False)
    energy = {k: v.clone() for k, v in model.energy.state_dict().items()}
    unseen = model.standardise(torch.from_numpy(x[500:]))
    before, _ = validation_scores(model.eval(), unseen, None)
    config = TrainConfig(
        steps=60, warmup=60, batch_size=64, learning_rate=1e-2, validate_every=20, device="cpu"
    )
    progress = fit(model, x[:500], x[500:], config, quiet=True)
    assert progress.best_score > before + 1
    after = validation_scores(model, unseen, None, energies=False)
    assert after == pytest.approx((progress.best_score, progress.best_score))
    for name, value in model.energy.state_dict().items():
        torch.testing.assert_close(value, energy[name])


def test_pooling_averages_densities(joint: JointMixture) -> None:
    other = JointMixture(joint.log_weights, -joint.means, joint.factors)
    z = np.random.default_rng(1).normal(size=(5, D))
    mean = 0.5 * (np.exp(joint.log_prob(z)) + np.exp(other.log_prob(z)))
    np.testing.assert_allclose(
        np.exp(JointMixture.pooled([joint, other]).log_prob(z)), mean, rtol=1e-10
    )


def test_the_wide_component_keeps_far_rows_possible(joint: JointMixture) -> None:
    z = np.random.default_rng(1).normal(size=(100, D))
    far = np.full((1, D), 30.0)
    assert joint.log_prob(far) < -500
    assert joint.with_wide_component(z).log_prob(far) > -60


def test_a_fresh_anchored_model_is_the_mixture(joint: JointMixture) -> None:
    z = torch.randn(6, D, dtype=torch.float64)
    log_prob = anchored(joint)().log_prob(z)
    np.testing.assert_allclose(log_prob, joint.log_prob(z.numpy()), atol=1e-4)


@pytest.mark.parametrize("memory", [True, False])
def test_one_feature_at_a_time_is_the_same(joint: JointMixture, *, memory: bool) -> None:
    model = anchored(joint, memory=memory)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    z = torch.randn(5, D)
    every = model.conditionals(z).proposal
    sequence = model.sequence(5)
    for d in range(D):
        one = sequence.next().proposal
        x = torch.randn(5, 3)
        torch.testing.assert_close(
            one.log_prob(x), every.flatten().select(torch.arange(5) * D + d).log_prob(x)
        )
        sequence.push(z[:, d])


def test_anchored_conditionals_do_not_see_what_follows(joint: JointMixture) -> None:
    model = anchored(joint)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    z = torch.randn(D, requires_grad=True)
    proposal = model.conditionals(z[None]).proposal
    probe = torch.zeros(1, D, 1)
    for d in range(D):
        (gradient,) = torch.autograd.grad(
            proposal.log_prob(probe)[0, d, 0], z, retain_graph=True, allow_unused=True
        )
        assert not gradient[d:].any()
        assert d == 0 or gradient[:d].all()


@pytest.mark.parametrize("memory", [True, False])
def test_training_cannot_lose_the_tails(joint: JointMixture, *, memory: bool) -> None:
    z = np.random.default_rng(1).normal(size=(100, D))
    wide = joint.with_wide_component(z)
    config = ModelConfig(
        features=D, hidden=16, blocks=1, gamma=2, energy_hidden=4, energy_blocks=1,
        proposal="anchored", components=K + 1,
    )  # fmt: skip
    model = AEM(config)
    head_of(model).anchor(wide.log_weights, wide.means, wide.factors, memory=memory)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(100 * torch.randn_like(parameter))
    far = torch.full((1, D), 30.0, dtype=torch.float64)
    assert float(model.eval()().log_prob(far)[0]) > -300


def test_outliers_that_stand_together_are_left_out() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate((rng.normal(size=(300, 3)), rng.normal(6, 0.1, (20, 3))))
    kept = central_rows(x, 0.1)
    assert kept.sum() == 288
    assert not kept[300:].any()


def test_columns_by_themselves_and_blurred(joint: JointMixture) -> None:
    # Both are known of the Gaussians one by one.
    z = np.random.default_rng(1).normal(size=(6, D))
    weights = np.exp(joint.log_weights)
    covariances = joint.factors @ joint.factors.transpose(0, 2, 1)
    parts = list(zip(weights, joint.means, covariances, strict=True))
    for d in range(D):
        alone = sum(w * multivariate_normal(m[d], c[d, d]).pdf(z[:, d]) for w, m, c in parts)
        np.testing.assert_allclose(joint.by_column(z)[:, d], np.log(alone), rtol=1e-9)
    noisy = sum(w * multivariate_normal(m, c + 0.25 * np.eye(D)).pdf(z) for w, m, c in parts)
    np.testing.assert_allclose(joint.blurred(0.5).log_prob(z), np.log(noisy), rtol=1e-9)
    np.testing.assert_allclose(
        JointMixture(*head_of(anchored(joint)).anchored_to()).log_prob(z),
        joint.log_prob(z),
        rtol=1e-5,
    )


def test_frequencies_are_higher_where_rows_crowd() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4000, 3))
    z[:, 1:] = np.where(rng.random((4000, 2)) < 0.9, 0.05, 3.0) * z[:, 1:]
    cells = np.array([False, False, True])
    normal, crowded, discrete = ladders(z, cells, 5)[:, -1].tolist()
    assert normal == pytest.approx(discrete, rel=0.1)
    assert 10 * normal < crowded < 33 * normal
    assert ladders(z, cells, 0).shape == (3, 0)


@pytest.mark.parametrize(("known", "expected"), [(0.3, 4), (-1.0, 2)])
def test_large_mixtures_have_to_generalise(
    known: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four clusters: four components suit unseen rows best, if so many may be one mixture at all."""
    monkeypatch.setattr(aem.tables.fit.mixtures, "POOLED", 2)
    monkeypatch.setattr(aem.tables.fit.mixtures, "KNOWN", known)
    rng = np.random.default_rng(0)
    z = rng.choice([-1.0, 1.0], size=(1200, 2)) + 0.1 * rng.normal(size=(1200, 2))
    _, chosen = choose_mixture(z[:1000], z[1000:], (1, 2, 4), 0, silent)
    assert chosen["components"] == expected
    _, given = choose_mixture(z[:1000], z[1000:], (4,), 0, silent)
    assert given["components"] == 4  # what a user asks for is not judged
