"""Four scores of one density: they agree with each other, and with what `TableModel.score` says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aem import AEM, TableModel
from aem.conditionals.normalizer import Quadrature
from aem.errors import AemError
from aem.evaluation.side_by_side import evaluate
from aem.model.transforms.offset import Offset
from aem.tables.ensemble import TableEnsemble
from aem.tables.files import load_table
from aem.tables.scores import TableScores
from aem.vae import save_prior
from tests.support.rough import rough_model, rows_of
from tests.support.tables import (
    ENSEMBLES,
    MODELS,
    NAMES,
    ensemble,
    plain,
    rows_for,
    table_of,
    unnamed,
)

EVERY: dict[str, Callable[[], TableModel | TableEnsemble]] = {**MODELS, **ENSEMBLES}
COUNTED = ("discrete", "all", "reordered", "ensemble")
every = pytest.mark.parametrize("name", EVERY)


@every
def test_the_quadrature_is_what_the_table_scores(name: str) -> None:
    """To the errors that both state, row by row and in the mean."""
    table = EVERY[name]()
    rows = rows_for(table)
    own = table.score(rows)
    settled = evaluate(TableScores.of(table), rows, samples=0, kde_samples=0).settled
    error = settled.error.numpy() + own.error + 1e-12
    assert (np.abs(settled.log_prob.numpy() - own.total) <= error).all()
    assert settled.held_still


@every
def test_many_samples_agree_with_the_quadrature(name: str) -> None:
    """Discrete columns included: within four standard errors of the draws."""
    scores, rows = TableScores.of(EVERY[name]()), rows_for(EVERY[name]())
    found = evaluate(scores, rows, samples=3000, kde_samples=0, seed=1)
    assert found.importance is not None
    assert found.importance_noise is not None
    assert found.importance_bias is not None
    above = found.importance.mean - found.importance_bias - found.quadrature.mean
    assert abs(above) <= 2 * found.importance_noise + found.error
    assert found.importance_noise < 0.03, "the test would not see a mistake"


@every
def test_a_flat_energy_leaves_the_proposal(name: str) -> None:
    """Then all three are one number, counted values or not; a literal energy has no flat form."""
    table = EVERY[name]()
    members = table.members if isinstance(table, TableEnsemble) else (table,)
    if any(member.model.config.energy == "literal" for member in members):
        return
    for member in members:
        with torch.no_grad():
            member.model.energy.final.weight.zero_()
        assert member.exact.flat
    scores, rows = TableScores.of(table), rows_for(table)
    found = evaluate(scores, rows, samples=5, kde_samples=0)
    assert found.importance is not None
    assert found.proposal.mean == pytest.approx(found.quadrature.mean, abs=1e-9)
    # Their energy is not computed at all; that of the draws is, in single precision.
    assert found.importance.mean == pytest.approx(found.quadrature.mean, abs=1e-3)


def test_the_proposal_alone_gives_all_values_a_probability_of_one() -> None:
    table = table_of(("size", "count"), moved=False)
    rows = np.repeat(rows_for(table, 1), 60, axis=0)
    rows[:, 1] = np.arange(-20, 40)
    terms = table.log_proposal(torch.from_numpy(rows))
    assert float(terms[:, 1].exp().sum()) == pytest.approx(1.0, abs=1e-3)
    assert float(terms[:, 0].diff().abs().max()) == 0
    scored = np.exp(table.score(rows, tolerance=1e-6).log_density[:, 1])
    assert scored.sum() == pytest.approx(1.0, abs=1e-3)
    assert np.abs(scored - terms[:, 1].exp().numpy()).max() > 0.01, "the energy matters"


@pytest.mark.parametrize("name", ["normal scores", "offset", "whitened", "turned"])
def test_kernels_are_in_the_units_of_the_table(name: str) -> None:
    """AEM-KDE approaches the density as kernels grow in number, whatever the transform."""
    table = EVERY[name]()
    drawn = table.sample(120, 3)
    found = evaluate(
        TableScores.of(table), drawn[60:], validation=drawn[:60], samples=0, kde_samples=1500
    )
    assert found.kde is not None
    assert found.kde.mean == pytest.approx(found.quadrature.mean, abs=0.25)


@pytest.mark.parametrize("name", COUNTED)
def test_counted_values_have_no_kernels(name: str) -> None:
    table = EVERY[name]()
    scores, rows = TableScores.of(table), rows_for(table)
    with pytest.raises(AemError, match="AEM-KDE is a density of values, and this table has discre"):
        scores.fit_kde(torch.from_numpy(rows), 10)
    found = evaluate(scores, rows, samples=0, kde_samples=10)
    assert found.kde is None
    assert found.kernels is None
    assert (found.set_aside, found.quadrature.rows) == (0, len(rows))


def test_of_a_file_of_each_kind(tmp_path: Path) -> None:
    """A detector's and a prior's density as well."""
    save_prior(unnamed().model, torch.nn.Linear(1, 1), tmp_path / "prior.aem")
    ensemble().save(tmp_path / "ensemble.aem")
    kept = Path(__file__).parents[1] / "kept" / "0.1"
    for path in (*tmp_path.iterdir(), kept / "detector.aem", kept / "table.aem"):
        table = load_table(path)
        rows = rows_for(table, 12)
        found = evaluate(TableScores.of(table), rows, samples=0, kde_samples=0)
        own = table.score(rows)
        error = found.error + own.error.mean() + 1e-12
        assert abs(found.quadrature.mean - own.total.mean()) <= error


@pytest.mark.parametrize("name", ["literal", "all", "ensemble"])
def test_rows_may_be_scored_a_few_at_a_time(name: str) -> None:
    table = EVERY[name]()
    rows = torch.from_numpy(rows_for(table, 30))
    scores = TableScores.of(table)
    little = TableScores.of(table, memory=2**18)
    settings = Quadrature(memory=2**18)
    whole, part = scores.quadrature(rows, Quadrature()), little.quadrature(rows, settings)
    torch.testing.assert_close(part.log_prob, whole.log_prob, rtol=0, atol=2e-3)
    torch.testing.assert_close(scores.proposal(rows)[:7], scores.proposal(rows[:7]))


def test_progress_ends_where_the_work_does() -> None:
    """Every member's pass over the rows is a share of the whole."""
    mixed = ensemble()
    told: dict[str, list[float]] = {}

    def report(what: str, done: int, total: int) -> None:
        told.setdefault(what, []).append(done / total)

    evaluate(TableScores.of(mixed), rows_for(mixed), samples=20, kde_samples=0, report=report)
    for shares in told.values():
        assert shares == sorted(shares)
        assert shares[-1] == 1


def test_a_row_without_a_density_for_one_member_has_none() -> None:
    """The paper's energy may fall faster in a tail than its proposal does."""
    sound, unsound = rough_model("literal"), rough_model("literal")
    with torch.no_grad():
        unsound.energy.final.weight.neg_()
    rows = rows_of(sound, 5)
    for members, without in (([sound], False), ([unsound], True), ([sound, unsound], True)):
        scores = TableScores(tuple(TableModel(model) for model in members))
        assert bool(scores.without_density(rows).all()) is without
        assert bool(scores.without_density(rows).any()) is without


def test_the_digest_is_of_all_that_decides_a_score() -> None:
    table = table_of(NAMES)
    own = TableScores.of(table).digest()
    assert TableScores.of(table_of(NAMES)).digest() == own
    changed: list[TableModel | TableEnsemble] = [
        table_of(NAMES, seed=1),
        table.in_order(NAMES[::-1]),
        TableModel(table.model, table.transform, table.discrete[:1]),
        TableModel(table.model, table.transform.then(Offset((1.0,) + (0.0,) * 4)), table.discrete),
        TableEnsemble([table, table]),
    ]
    found = {TableScores.of(other).digest() for other in changed}
    assert len(found | {own}) == len(changed) + 1
    remarked = TableModel(table.model, table.transform, table.discrete, {"note": "another"})
    assert TableScores.of(remarked).digest() == own
    # Weights that mean something else.
    model = plain().model
    other = AEM(replace(model.config, activation="tanh"), columns=model.columns)
    other.load_state_dict(model.state_dict())
    assert TableScores.of(TableModel(other)).digest() != TableScores.of(plain()).digest()


def test_members_are_scored_behind_their_own_transforms() -> None:
    """A mixture's score is that of its members, as each scores by itself."""
    mixed = ensemble()
    rows = torch.from_numpy(rows_for(mixed))
    each = torch.stack([TableScores.of(m).proposal(rows) for m in mixed.members])
    expected = each.logsumexp(0) - np.log(len(each))
    torch.testing.assert_close(TableScores.of(mixed).proposal(rows), expected)
    assert TableScores.of(mixed).columns == NAMES
