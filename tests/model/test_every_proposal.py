"""A model with every kind of proposal: scores, functions, draws, training, files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aem import AEM, Quadrature, TrainConfig, fit, load_model, save_model
from aem.conditionals.batch import Conditionals, EnergyForm
from aem.conditionals.coordinates import coordinates_for
from aem.conditionals.normalizer import normalizer
from aem.model.distribution import Method
from tests.support.kinds import (
    FALSE_ALARM,
    configured,
    every_form,
    integrals,
    levels,
    model_of,
    most_kinds,
    uniformity,
)
from tests.support.rough import flat_conditionals, rows_of


@torch.no_grad()
def brute_log_z(conditionals: Conditionals) -> Tensor:
    """log ∫ p̃ dx by many nodes in x, between quantiles and in octaves beyond them."""
    q = conditionals.proposal
    points = [q.icdf(levels(q, 1e-30, *np.linspace(0.001, 0.999, 40))), q.isf(levels(q, 1e-30))]
    if not q.bounded:
        octaves = 2.0 ** torch.arange(-3, 110 if q.heavy_tailed else 8)
        octaves = torch.cat((-octaves, octaves)).double().expand(len(q.batch), -1)
        # A relative energy has no density beyond the proposal's, a literal one beyond the network's.
        reach = torch.full_like(points[1], 1e3) if conditionals.form == "literal" else points[1]
        least = -reach if conditionals.form == "literal" else points[0][:, :1]
        points.append(torch.minimum(torch.maximum(octaves, least), reach))
    edges = torch.cat(points, -1).sort(-1).values
    parts = integrals(lambda x: conditionals.log_unnormalized(x).exp(), edges, 1e-5)
    return parts.sum(-1).log()


@most_kinds
@every_form
def test_exact_normalisers_agree_with_brute_force(form: EnergyForm, kind: str) -> None:
    conditionals = flat_conditionals(model_of(kind, form), 2)
    computed = normalizer(conditionals, Quadrature(), tolerance=1e-4)
    assert bool(computed.converged.all())
    miss = (computed.log_z - brute_log_z(conditionals)).abs()
    assert bool((miss <= computed.error + 1e-6).all())
    assert float(computed.error.max()) <= 1.001e-4


@most_kinds
@every_form
@torch.no_grad()
def test_coordinates_know_their_own_slope(form: EnergyForm, kind: str) -> None:
    """Weight times measure is p̃(x) dx/dt, and the mass of a panel the integral of the measure."""
    conditionals = flat_conditionals(model_of(kind, form), 2)
    coordinates = coordinates_for(conditionals)
    edges = coordinates.edges().unique()
    assert bool((edges.diff() > 0).all())
    inner = torch.tensor([0.1, 0.35, 0.7, 0.93], dtype=torch.float64)
    t = (edges[:-1, None] + edges.diff()[:, None] * inner).reshape(-1).expand(4, -1)
    x = coordinates.point(t)
    torch.testing.assert_close(coordinates.coordinate(x), t, rtol=0, atol=1e-9)
    h = 1e-6
    slope = (coordinates.point(t + h) - coordinates.point(t - h)) / (2 * h)
    log_density = conditionals.log_unnormalized(x) + slope.log()
    found = coordinates.log_weight(t, x) + coordinates.measure(t, x).log()
    visible = log_density > -600  # where a number holds the measure
    torch.testing.assert_close(found[visible], log_density[visible], rtol=1e-5, atol=1e-5)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    for low, high in ((0.05, 0.06), (0.41, 0.44), (0.9, 0.91)):
        start, end = torch.full((4,), low).double(), torch.full((4,), high).double()
        t = (low + 0.5 * (high - low) * (1 + torch.from_numpy(nodes))).expand(4, -1)
        sums = (
            coordinates.measure(t, coordinates.point(t))
            @ torch.from_numpy(weights)
            * 0.5
            * (high - low)
        )
        # A kink between the nodes leaves them an error.
        torch.testing.assert_close(sums, coordinates.mass(start, end), rtol=1e-2, atol=1e-12)


@most_kinds
@every_form
@pytest.mark.filterwarnings("ignore::aem.errors.AccuracyWarning")
def test_a_row_has_one_score_in_any_batch(form: EnergyForm, kind: str) -> None:
    model = model_of(kind, form)
    rows = rows_of(model, 7)
    together, error = model().log_prob_and_error(rows)
    for i in (0, 3, 6):
        alone, own_error = model().log_prob_and_error(rows[i : i + 1])
        assert torch.equal(alone[0], together[i]) and torch.equal(own_error[0], error[i])


@most_kinds
@every_form
def test_the_distribution_functions_are_inverse_and_regions_hold_their_mass(
    form: EnergyForm, kind: str
) -> None:
    model = model_of(kind, form)
    u = torch.tensor([[1e-9, 0.5], [0.3, 1 - 1e-9], [0.7, 1e-3]], dtype=torch.float64)
    rows = model().icdf(u)
    torch.testing.assert_close(model().cdf(rows), u, rtol=1e-6, atol=1e-12)
    conditional = model().conditionals(rows[1:])[1]
    for region in conditional.highest_density_regions(0.9):
        below = conditional.cdf(region.flatten())
        held = [float(some.view(-1, 2).diff(dim=-1).sum()) for some in below]
        assert min(abs(mass - 0.9) for mass in held) < 1e-3


@most_kinds
@pytest.mark.parametrize(
    ("form", "method"),
    [
        ("relative", "exact"),
        ("relative", "inverse"),
        ("relative", "resample"),
        ("literal", "exact"),
    ],
)
def test_draws_agree_with_the_distribution_function(
    form: EnergyForm, method: Method, kind: str
) -> None:
    model = model_of(kind, form, size=0.5)
    torch.manual_seed(3)
    draws = model().sample((300,), method=method)
    assert draws.isfinite().all()
    assert all(uniformity(u) > FALSE_ALARM for u in model().cdf(draws.double()).unbind(-1))


@most_kinds
@torch.no_grad()
def test_draws_of_the_proposal_alone_are_its_own(kind: str) -> None:
    model = model_of(kind)
    torch.manual_seed(3)
    z = model.standardise(model().sample((2000,), method="proposal").double())
    u = model.in_double().conditionals(z.double()).proposal.cdf(z.double()[..., None])[..., 0]
    assert all(uniformity(column) > FALSE_ALARM for column in u.unbind(-1))


@most_kinds
@pytest.mark.parametrize(
    ("estimator", "stratified"), [("importance", True), ("importance", False), ("ranking", True)]
)
def test_training_raises_the_likelihood(estimator: str, stratified: bool, kind: str) -> None:
    rng = np.random.default_rng(0)
    first = rng.random((600, 1)) * 4 - 1
    rows = np.hstack((first, np.sin(3 * first) + 0.1 * rng.normal(size=(600, 1))))
    settings = {"hidden": 16, "blocks": 1, "energy_hidden": 16, "energy_blocks": 1, "gamma": 8}
    torch.manual_seed(0)
    model = AEM.for_data(configured(kind, frequencies=2, **settings), rows)
    held_out = torch.from_numpy(rows[500:])
    before = float(model.eval()().log_prob(held_out).mean())
    training: dict[str, Any] = {"estimator": estimator, "stratified": stratified}
    config = TrainConfig(steps=60, batch_size=64, learning_rate=1e-2, averaging=0.5, **training)
    fit(model, rows[:500], rows[500:], config, quiet=True)
    assert float(model().log_prob(held_out).mean()) > before + 0.05


@most_kinds
def test_a_file_gives_the_same_bits_back(kind: str, tmp_path: Path) -> None:
    model = model_of(kind)
    save_model(model, tmp_path / "model.aem")
    loaded = load_model(tmp_path / "model.aem")
    assert loaded.config == model.config and type(loaded.head) is type(model.head)
    rows = rows_of(model, 5)
    assert torch.equal(loaded().log_prob(rows), model().log_prob(rows))
    draws = []
    for some in (model, loaded):
        torch.manual_seed(0)
        draws.append(some().sample((20,)))
    assert torch.equal(*draws)
