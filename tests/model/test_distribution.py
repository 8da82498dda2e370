import math
import warnings

import pytest
import torch
from torch import Tensor

from aem import AEM, AemError
from aem.conditionals.batch import Conditionals, EnergyForm
from aem.conditionals.normalizer import DivergentNormalizer, Quadrature
from aem.errors import AccuracyWarning
from aem.model.scoring import Scores
from tests.support.rough import rough_model, rows_of


def context_for(model: AEM, rows: int) -> Tensor | None:
    size = model.config.context_features
    return torch.randn(rows, size, dtype=torch.float64) if size else None


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("proposal", ["mixture", "uniform"])
@pytest.mark.parametrize("form", ["relative", "literal"])
def test_densities_integrate_to_one(form: EnergyForm, proposal: str, context: int) -> None:
    """Over a fine grid; its rows share a few hundred conditionals, so this is quick."""
    model = rough_model(form, proposal, context, size=1.0, top=3.0)
    # Literal tails decay like exp(−k|x|) only.
    reach = 19.0 if form == "literal" else 9.0
    low, high = (-3.0, 5.0) if proposal == "uniform" else (1 - reach, 1 + reach)
    side = 500 if (form, proposal) == ("literal", "mixture") else 250
    axis = low + (high - low) * (torch.arange(side, dtype=torch.float64) + 0.5) / side
    rows = torch.cartesian_prod(axis, axis)
    given = context_for(model, 1)
    distribution = model(None if given is None else given.expand(len(rows), -1))
    scores = distribution.scores(rows)
    total = scores.log_prob.sum(-1).exp().sum() * ((high - low) / side) ** 2
    assert float(total) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("proposal", ["mixture", "uniform"])
def test_a_flat_energy_needs_no_integral(proposal: str) -> None:
    """Its scores are those of an energy that is as good as flat."""
    model = rough_model("relative", proposal)
    rows = rows_of(model, 5)
    with torch.no_grad():
        model.energy.final.weight.fill_(1e-30)
        nearly = model().scores(rows, Quadrature(tolerance=1e-9))
        model.energy.final.weight.zero_()
    flat = model().scores(rows)
    assert model.flat and int(flat.nodes.max()) == 0 < int(nearly.nodes.min())
    assert bool(flat.converged.all()) and float(flat.error.max()) == 0
    for name in ("log_prob", "log_proposal", "log_z"):
        torch.testing.assert_close(getattr(flat, name), getattr(nearly, name), rtol=0, atol=1e-8)


def test_rows_that_share_a_past_share_a_conditional(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rough_model()
    model().scores(rows_of(model, 1))
    evaluated = 0
    original = Conditionals.log_weight

    def counted(self: Conditionals, x: Tensor) -> Tensor:
        nonlocal evaluated
        evaluated += x.numel()
        return original(self, x)

    monkeypatch.setattr(Conditionals, "log_weight", counted)
    scores = model().scores(rows_of(model, 20))
    assert evaluated == int(scores.nodes[:, 1].sum() + scores.nodes[0, 0])


@pytest.mark.parametrize("context", [0, 2])
def test_the_same_row_has_the_same_score_in_any_company(context: int) -> None:
    model = rough_model(context=context, features=3, size=1.0)
    rows = rows_of(model, 6)
    given = context_for(model, 6)

    def score(order: Tensor, tolerance: float, memory: int = 0) -> Tensor:
        distribution = model(None if given is None else given[order])
        settings = Quadrature(tolerance=tolerance, memory=memory)
        scores: Scores = distribution.scores(rows[order], settings)
        return scores.log_prob.sum(-1)

    everything = torch.arange(6)
    # Energies are computed in float32, where that suffices, and in float64: the same bits either way.
    for tolerance, rounding in ((1e-3, 0), (1e-5, 0)):
        reference = score(everything, tolerance)
        for some in (everything.flip(0), everything[5:6], everything[2:5]):
            torch.testing.assert_close(
                score(some, tolerance), reference[some], rtol=0, atol=rounding
            )
        for memory in (2**18, 2**20):
            again = score(everything, tolerance, memory)
            torch.testing.assert_close(again, reference, rtol=0, atol=rounding)
        least = score(everything[:1], tolerance, memory=1)
        torch.testing.assert_close(least, reference[:1], rtol=0, atol=rounding)
    if given is None:
        single = model().log_prob(rows.float())
        alone = torch.stack([model().log_prob(row) for row in rows.float()])
        torch.testing.assert_close(single, alone, rtol=0, atol=0)


@pytest.mark.parametrize("proposal", ["mixture", "uniform"])
@pytest.mark.parametrize("form", ["relative", "literal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_never_nan(dtype: torch.dtype, form: EnergyForm, proposal: str) -> None:
    model = rough_model(form, proposal, size=3.0)
    values = [1e4, 1e30, 3e38] + ([1e300, 1.7e308] if dtype is torch.float64 else [])
    rows = torch.tensor(
        [row for v in values for s in (v, -v) for row in ([s, 0.0], [0.0, s], [s, s])], dtype=dtype
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        log_prob, error = model().log_prob_and_error(rows)
        u = model().cdf(rows)
    assert not bool((log_prob.isnan() | error.isnan()).any())
    assert not bool((log_prob == math.inf).any())
    assert bool(((u >= 0) & (u <= 1)).all())
    for wrong in (math.inf, -math.inf, math.nan):
        with pytest.raises(AemError, match="not finite"):
            model().log_prob(torch.tensor([[0.0, wrong]], dtype=dtype))


def test_contexts_that_cannot_be() -> None:
    model = rough_model(context=2, features=3, size=1.0)
    rows = torch.zeros(2, 3)
    with pytest.raises(AemError, match="not finite"):
        model(torch.tensor([float("nan"), 0.0])).log_prob(rows)
    with pytest.raises(AemError, match=r"rows \(2,\) and contexts \(3,\)"):
        model(torch.zeros(3, 2)).log_prob(rows)


def test_contexts_far_away_and_in_double_precision() -> None:
    model = rough_model(context=2, features=3, size=1.0)
    far = model(torch.tensor([1e16, 0.0], dtype=torch.float64))
    assert bool(far.log_prob(torch.zeros(2, 3)).isfinite().all())
    assert bool(far.sample(torch.Size((4,))).isfinite().all())


def test_a_tolerance_that_cannot_be_met_names_its_rows() -> None:
    model = rough_model(size=4.0)
    rows = rows_of(model, 8)
    scores = model().scores(rows, Quadrature(tolerance=1e-9, max_nodes=300))
    reference = model().scores(rows, Quadrature(tolerance=1e-6))
    assert not bool(scores.converged.all())
    assert bool(((scores.log_z - reference.log_z).abs() <= scores.error + 1e-6).all())
    with pytest.warns(AccuracyWarning, match=r"8 of 8 rows \(0, 1, 2, 3, 4, …\)"):
        scores.warn(1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model().log_prob_and_error(rows)


def test_a_literal_energy_without_a_normaliser_is_named() -> None:
    model = rough_model("literal")
    with torch.no_grad():
        model.energy.final.weight.neg_()
    with pytest.raises(DivergentNormalizer, match=r"column 'x1'.*row 0.*energy 'relative'"):
        model().log_prob(rows_of(model, 3))
    with pytest.raises(DivergentNormalizer):
        model().sample((2,))


def test_mass_outside_the_reach_is_reported() -> None:
    model = rough_model("literal", size=0.3)
    with torch.no_grad():
        model.energy.final.weight.mul_(0.05)
    with pytest.warns(AccuracyWarning, match="outside the proposal's reach"):
        model().log_prob(rows_of(model, 4))
    inside = rough_model("relative").eval()
    assert float(inside().scores(rows_of(inside, 4)).outside.max()) == 0


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("form", ["relative", "literal"])
def test_cdf_and_icdf_are_inverse(form: EnergyForm, context: int) -> None:
    model = rough_model(form, context=context, features=3, size=1.0)
    rows = rows_of(model, 10)
    distribution = model(context_for(model, 10))
    u = distribution.cdf(rows)
    torch.testing.assert_close(distribution.icdf(u), rows, rtol=0, atol=1e-7)
    with pytest.raises(AemError, match="between 0 and 1"):
        distribution.icdf(u + 1)


def test_shapes_and_empty_tables() -> None:
    model = rough_model()
    distribution = model()
    none = torch.zeros(0, 2)
    assert distribution.log_prob(none).shape == (0,)
    assert distribution.cdf(none).shape == distribution.icdf(none).shape == (0, 2)
    assert distribution.sample((0,), method="inverse").shape == (0, 2)
    rows = rows_of(model, 6).reshape(2, 3, 2)
    assert distribution.cdf(rows).shape == (2, 3, 2)
    assert distribution.log_prob(rows).shape == (2, 3)
    with pytest.raises(AemError, match="columns"):
        distribution.log_prob(torch.zeros(3, 5))
