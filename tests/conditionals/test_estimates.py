"""The estimators against closed forms, with an energy we know standing in for the network."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aem import AEM, ModelConfig
from aem.conditionals.batch import DEPTH, Conditionals, EnergyForm
from aem.conditionals.estimates import Estimator, log_prob_estimate
from aem.conditionals.proposals.gaussian import GaussianMixture
from aem.nn.energy import EnergyNetwork

STANDARD_ERRORS = 4  # a false alarm in 16,000 tests, were the seeds not fixed

every_estimator = pytest.mark.parametrize(
    ("estimator", "stratified"),
    [("importance", True), ("importance", False), ("ranking", True), ("ranking", False)],
)


class KnownEnergy(EnergyNetwork):
    """f such that −log w (relative) or −log p̃ (literal) is exactly what we ask for.

    Wave (relative): w(x) = (0.5 + 0.45 sin x)^(1 + θ). Bell (literal): p̃ = e^(−1 − x²/2).
    θ comes through `projected`, one a conditional, so that each has its own gradient.
    """

    def __init__(self, shape: Literal["wave", "bell"]) -> None:
        super().__init__(1, 1, hidden=1, blocks=0)
        self.shape = shape

    def forward(self, embedded: Tensor, projected: Tensor) -> Tensor:
        x = embedded[..., 0]
        if self.shape == "bell":
            return torch.log(torch.expm1(1 + 0.5 * x.square()))
        energy = -(1 + projected) * torch.log(0.5 + 0.45 * torch.sin(x))
        return torch.log(torch.expm1(energy / (1 - energy / DEPTH)))


def known(
    shape: Literal["wave", "bell"],
    rows: int,
    theta: Tensor | None = None,
    *,
    backwards: bool = False,
) -> Conditionals:
    """The known energy over a mixture, whose components stand left to right or right to left."""
    parameters = torch.tensor([[0.3, 0.7], [-1.0, 0.5], [0.6, 1.2]], dtype=torch.float64)
    weights, locs, scales = parameters.flip(1) if backwards else parameters
    form: EnergyForm = "relative" if shape == "wave" else "literal"
    return Conditionals(
        GaussianMixture(*(p.expand(rows, 2) for p in (weights.log(), locs, scales))),
        torch.zeros(rows, 1, dtype=torch.float64) if theta is None else theta,
        torch.zeros(rows, 0, dtype=torch.float64),
        KnownEnergy(shape).double(),
        form,
    )


def true_normaliser(shape: Literal["wave", "bell"]) -> float:
    if shape == "bell":
        return math.exp(-1) * math.sqrt(2 * math.pi)
    # E sin x of a Gaussian is e^(−σ²/2) sin μ
    terms = ((0.3, -1.0, 0.6), (0.7, 0.5, 1.2))
    return 0.5 + 0.45 * sum(w * math.exp(-0.5 * s**2) * math.sin(m) for w, m, s in terms)


def estimates_of_z(shape: Literal["wave", "bell"], stratified: bool, nodes: int = 5) -> Tensor:
    """20,000 estimates Ẑ, read off log p̂ = log p̃(x) − log Ẑ."""
    conditionals = known(shape, 20_000)
    x = torch.zeros(20_000, dtype=torch.float64)
    log_p, log_q, _ = log_prob_estimate(
        conditionals, x, nodes=nodes, estimator="importance", stratified=stratified
    )
    return (conditionals.log_weight(x[:, None])[:, 0] + log_q - log_p).exp()


@pytest.mark.parametrize("shape", ["wave", "bell"])
def test_normaliser_is_unbiased_and_strata_help(shape: Literal["wave", "bell"]) -> None:
    spread = {}
    for stratified in (False, True):
        z = estimates_of_z(shape, stratified)
        spread[stratified] = z.std()
        error = z.mean() - true_normaliser(shape)
        assert error.abs() < STANDARD_ERRORS * spread[stratified] / math.sqrt(len(z))
    assert spread[True] < 0.7 * spread[False]


@every_estimator
@pytest.mark.parametrize("shape", ["wave", "bell"])
def test_many_nodes_give_the_density(
    shape: Literal["wave", "bell"], estimator: Estimator, stratified: bool
) -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)
    conditionals = known(shape, len(x))
    log_p, log_q, _ = log_prob_estimate(
        conditionals, x, nodes=20_000, estimator=estimator, stratified=stratified
    )
    torch.testing.assert_close(log_q, conditionals.proposal.log_prob(x[:, None])[:, 0])
    if shape == "bell":
        expected = -0.5 * x.square() - 0.5 * math.log(2 * math.pi)
    else:
        expected = torch.log(0.5 + 0.45 * torch.sin(x)) + log_q
        expected = expected - math.log(true_normaliser(shape))
    assert (log_p - expected).abs().max() < (2e-3 if stratified else 0.05)


# The ranking estimator is calibrated: at the true weights its expected gradient is zero with any
# number of nodes. Importance sampling is not, nor is the data point as an extra stratified node.


def data(rows: int) -> Tensor:
    """Exact draws of the wave's p: propose, accept with probability w."""
    conditionals = known("wave", 3 * rows)
    y = conditionals.proposal.transport(torch.rand(3 * rows, 1, dtype=torch.float64))
    accepted = torch.rand(3 * rows, 1).log() < conditionals.log_weight(y)
    return y[accepted][:rows]


def mean_score(
    method: Literal["importance", "ranking", "extra"], stratified: bool, backwards: bool = False
) -> float:
    """The mean gradient of log p̂ to θ over data of θ = 0, in its standard errors."""
    rows, nodes = 60_000, 2
    x = data(rows)
    assert len(x) == rows
    theta = torch.zeros(rows, 1, dtype=torch.float64, requires_grad=True)
    conditionals = known("wave", rows, theta, backwards=backwards)
    if method == "extra":
        u = (torch.arange(nodes) + torch.rand(rows, nodes, dtype=torch.float64)) / nodes
        y = torch.cat((x[:, None], conditionals.proposal.transport(u)), -1)
        log_p = conditionals.log_weight(y).log_softmax(-1)[:, 0]
    else:
        log_p, _, _ = log_prob_estimate(
            conditionals, x, nodes=nodes, estimator=method, stratified=stratified
        )
    (score,) = torch.autograd.grad(log_p.sum(), theta)
    return float(score.mean() / score.std() * math.sqrt(rows))


@pytest.mark.parametrize(("stratified", "backwards"), [(False, False), (True, False), (True, True)])
def test_ranking_is_calibrated(stratified: bool, backwards: bool) -> None:
    """Backwards the strata of `transport` are not those of the CDF: `position` must know."""
    assert abs(mean_score("ranking", stratified, backwards)) < STANDARD_ERRORS


@pytest.mark.parametrize(("method", "stratified"), [("importance", False), ("extra", True)])
def test_the_same_check_sees_what_is_not(
    method: Literal["importance", "extra"], stratified: bool
) -> None:
    assert abs(mean_score(method, stratified)) > 2 * STANDARD_ERRORS


@pytest.mark.parametrize("nodes", [2, 7, 20])
@pytest.mark.parametrize("stratified", [False, True])
def test_ranking_bounds_what_a_row_can_gain(nodes: int, stratified: bool) -> None:
    class Spike(EnergyNetwork):
        """As much weight as there can be at x = 9, as little as there can be elsewhere."""

        def forward(self, embedded: Tensor, projected: Tensor) -> Tensor:
            return torch.where((embedded[..., 0] - 9).abs() < 1e-6, -1e9, 1e9).double()

    c = known("wave", 4)
    c = Conditionals(
        c.proposal, c.projected, c.frequencies, Spike(1, 1, hidden=1, blocks=0), c.form
    )
    x = torch.full((4,), 9.0, dtype=torch.float64)
    log_p, log_q, _ = log_prob_estimate(c, x, nodes=nodes, stratified=stratified)
    most = math.log(nodes if stratified else nodes + 1)
    gain = log_p - log_q
    assert (gain <= most + 1e-12).all()
    assert (gain > most - 1e-9).all(), "and the bound is reached"


def model(energy: EnergyForm, **settings: int) -> AEM:
    config = ModelConfig(
        features=3,
        hidden=12,
        blocks=1,
        gamma=4,
        energy=energy,
        energy_hidden=8,
        energy_blocks=1,
        components=2,
        frequencies=2,
    )
    return AEM(config, frequencies=torch.rand(3, 2) * 4)


@every_estimator
@pytest.mark.parametrize("energy", ["relative", "literal"])
def test_nothing_flows_from_log_p_into_the_proposal(
    energy: EnergyForm, estimator: Estimator, stratified: bool
) -> None:
    aem = model(energy)
    z = torch.randn(16, 3)
    head = aem.head.size
    parameters = (aem.arnn.final.weight, aem.arnn.final.bias)

    def gradients(term: int) -> tuple[Tensor, Tensor, Tensor]:
        """To the rows of the last layer that emit φ, to those that emit γ, and to the energy."""
        aem.zero_grad()
        pair = log_prob_estimate(
            aem.conditionals(z), z, nodes=5, estimator=estimator, stratified=stratified
        )
        pair[term].sum().backward()
        rows = [p.grad.reshape(3, aem.arnn.outputs, -1) for p in parameters if p.grad is not None]
        assert len(rows) == 2
        phi, gamma = (
            torch.cat([r[:, s].flatten() for r in rows]) for s in (slice(head), slice(head, None))
        )
        own = [p.grad.flatten() for p in aem.energy.parameters() if p.grad is not None]
        return phi, gamma, torch.cat([torch.zeros(1), *own])

    phi, gamma, own = gradients(0)
    assert not phi.any() and gamma.any() and own.any()
    phi, gamma, own = gradients(1)
    assert phi.any() and not gamma.any() and not own.any()


@every_estimator
def test_a_constant_added_to_the_energy_cancels(estimator: Estimator, stratified: bool) -> None:
    """Where softplus is linear a shift of f scales p̃, and a density does not know its scale."""
    aem = model("literal").double().eval()
    z = torch.randn(50, 3, dtype=torch.float64)
    results = []
    for bias in (40.0, 47.0):
        torch.nn.init.constant_(aem.energy.final.bias, bias)
        torch.manual_seed(1)
        with torch.no_grad():
            pair = log_prob_estimate(
                aem.conditionals(z), z, nodes=5, estimator=estimator, stratified=stratified
            )
        results.append(pair[0])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_literal_energy_is_the_papers() -> None:
    aem = model("literal").double()
    torch.nn.init.normal_(aem.energy.final.bias, 0, 3)
    z = torch.randn(10, 3, dtype=torch.float64)
    c = aem.conditionals(z)
    embedded = aem.embedding(z)
    f = c.energy(embedded[:, :, None], c.projected)[..., 0]
    log_p_tilde = c.log_weight(z[..., None])[..., 0] + c.proposal.log_prob(z[..., None])[..., 0]
    torch.testing.assert_close(log_p_tilde, -F.softplus(f))
