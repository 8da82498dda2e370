"""Error rates: each Kolmogorov–Smirnov test below fails by chance with probability 1e-3 at most."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from aem import AemError
from aem.conditionals.batch import Conditionals
from aem.conditionals.cdf import PanelCDF
from aem.conditionals.normalizer import PANEL_BYTES, Normalizer, Quadrature, normalizer
from aem.config import RESAMPLED
from aem.model import sampling
from aem.model.distribution import Method
from aem.model.sampling import invert, pit
from tests.support.rough import flat_conditionals, rough_model, rows_of


@pytest.mark.parametrize("method", ["exact", "inverse"])
def test_pit_values_of_exact_samples_are_uniform(method: Method) -> None:
    """P-values at 20 fixed seeds, two features each, are uniform themselves."""
    model = rough_model(size=1.0, top=10.0)
    draws = []
    for seed in range(20):
        torch.manual_seed(seed)
        draws.append(model().sample((20,), method=method).double())
    u = model().cdf(torch.stack(draws))
    p_values = [
        stats.kstest(u[seed, :, d].numpy(), "uniform").pvalue for seed in range(20) for d in (0, 1)
    ]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("form", ["relative", "literal"])
def test_inversion_agrees_with_rejection_given_a_context(form: str) -> None:
    model = rough_model(
        "literal" if form == "literal" else "relative", context=2, size=1.0, top=10.0
    )
    context = torch.tensor([0.5, -1.0]).expand(150, 2)
    torch.manual_seed(1)
    u = model(context.double()).cdf(model(context).sample(method="exact").double())
    assert u.shape == (150, 2)
    for column in u.unbind(-1):
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-3


def pit_of(sampler: Callable[[Conditionals], Tensor], count: int = 2000) -> np.ndarray:
    """PIT values of draws from one conditional far from its proposal (N = 100 resampled)."""
    conditional = flat_conditionals(rough_model(size=2.0, seed=3), 1).select(torch.tensor([1]))
    computed = normalizer(conditional, Quadrature(), tolerance=1e-6, keep_panels=True)
    torch.manual_seed(0)
    with torch.no_grad():
        draws = sampler(conditional.select(torch.zeros(count, dtype=torch.long)))
    values: np.ndarray = PanelCDF.of(computed).cdf(draws[None])[0].numpy()
    return values


def test_resampling_approaches_the_conditional_and_the_proposal_does_not() -> None:
    assert stats.kstest(pit_of(sampling.by_resampling), "uniform").pvalue > 1e-3
    assert stats.kstest(pit_of(sampling.by_rejection), "uniform").pvalue > 1e-3
    assert stats.kstest(pit_of(sampling.by_inversion, 50), "uniform").pvalue > 1e-3
    assert stats.kstest(pit_of(sampling.from_proposal), "uniform").pvalue < 1e-6


def test_one_proposal_is_the_proposal_and_more_come_closer() -> None:
    """What resampling is short of the conditional falls with the number it chooses from."""

    def distance(proposals: int) -> float:
        sampler = partial(sampling.by_resampling, proposals=proposals)
        return float(stats.kstest(pit_of(sampler), "uniform").statistic)

    alone = float(stats.kstest(pit_of(sampling.from_proposal), "uniform").statistic)
    assert abs(distance(1) - alone) < 0.05
    assert alone > distance(4) + 0.03 > distance(400)


def test_the_number_of_proposals_is_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rough_model()
    asked, original = [], sampling.proposal_draws

    def watch(conditionals: Conditionals, count: int) -> Tensor:
        asked.append((len(conditionals.projected), count))
        return original(conditionals, count)

    monkeypatch.setattr(sampling, "proposal_draws", watch)
    model().sample((3000,), method="resample", proposals=1000)
    assert sum(rows for rows, _ in asked) == 2 * 3000
    assert {count for _, count in asked} == {1000}
    # As many nodes at a time as with a hundred, and no more.
    assert max(rows * count for rows, count in asked) <= sampling.BLOCK["cpu"] * RESAMPLED
    asked.clear()
    model().sample((3,), method="resample")
    assert {count for _, count in asked} == {100}
    with pytest.raises(AemError, match="at least one proposal, not 0"):
        model().sample((3,), method="resample", proposals=0)


def test_leftovers_of_rejection_are_inverted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_ROUNDS", 1)
    assert stats.kstest(pit_of(sampling.by_rejection, 100), "uniform").pvalue > 1e-3


def test_many_tries_in_the_first_round_are_as_exact_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU, where a round of many points takes no longer than one of few."""
    monkeypatch.setattr(sampling, "BUSY", {"cpu": 2**14})
    assert stats.kstest(pit_of(sampling.by_rejection), "uniform").pvalue > 1e-3


def test_methods() -> None:
    model = rough_model()
    for method in ("exact", "inverse", "resample", "proposal"):
        drawn = model().sample((5,), method=method)
        assert drawn.shape == (5, 2) and drawn.dtype == torch.float32
        assert bool(torch.isfinite(drawn).all())
    with pytest.raises(AemError, match="unknown sampling method"):
        sampling.Drawing("magic")


def test_cdfs_keep_no_more_panels_than_fit() -> None:
    """With memory for a handful of rows' panels the numbers are those of a large block."""
    model = rough_model(size=2.0, top=60.0)
    rows = rows_of(model, 90)
    exact = model.in_double()
    most = []
    kept = PanelCDF.of

    def watch(computed: Normalizer) -> PanelCDF:
        cdf = kept(computed)
        most.append(len(cdf.panels))
        return cdf

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(PanelCDF, "of", watch)
        whole = pit(exact, rows, None, Quadrature())
        largest = max(most)
        most.clear()
        small = Quadrature(memory=2 * PANEL_BYTES * largest // 8)
        parts = pit(exact, rows, None, small)
        back = invert(exact, parts, None, small)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-9)
    torch.testing.assert_close(back, exact.standardise(rows), rtol=0, atol=1e-5)
    assert len(most) > 2 and most[-1] < largest / 2
