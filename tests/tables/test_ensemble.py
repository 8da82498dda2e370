"""Mixtures of models of one table: a density with an error, whatever the members are."""

import math

import numpy as np
import pytest
import torch

from aem import AEM, TableModel
from aem.errors import AemError
from aem.model.transforms.base import Chain
from aem.model.transforms.offset import Offset
from aem.model.transforms.permutation import Permutation
from aem.model.transforms.symmetry import Symmetry
from aem.tables.discrete import Discrete
from aem.tables.ensemble import TableEnsemble, column_orders, mixture_error, mixture_log_prob
from tests.support.tables import (
    NAMES,
    SMALL,
    columns_of,
    ensemble,
    rows_for,
    table_of,
    turned,
    untrained,
)

COLUMNS = ("far", "near")


@pytest.fixture(scope="module")
def orders() -> TableEnsemble:
    """Two orders of two columns of very different place and width."""
    rows = np.random.default_rng(0).normal(size=(200, 2)) * [0.5, 2.0] + [50.0, 0.0]
    members = []
    for order in ((0, 1), (1, 0)):
        columns = [COLUMNS[i] for i in order]
        model = untrained(SMALL, rows[:, list(order)], columns)
        members.append(TableModel(model).in_order(COLUMNS))
    return TableEnsemble(members)


def mass(mixed: TableEnsemble, a: np.ndarray, b: np.ndarray) -> float:
    """Of a density of two columns over evenly spaced points."""
    grid = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    total = np.exp(mixed.score(grid).total).sum() * (a[1] - a[0]) * (b[1] - b[0])
    return float(total)


def test_orders_are_permutations_that_do_not_depend_on_their_number() -> None:
    orders = column_orders(7, 4, seed=3)
    assert orders[0] == tuple(range(7))
    assert all(sorted(order) == list(range(7)) for order in orders)
    assert len(set(orders)) == 4
    assert column_orders(7, 2, seed=3) == orders[:2]
    assert column_orders(7, 4, seed=4) != orders


def test_it_is_the_mean_of_the_members_densities(orders: TableEnsemble) -> None:
    x = np.array([[50.2, 0.3], [49.0, -4.0]])
    first, second = (np.exp(member.score(x).total) for member in orders.members)
    np.testing.assert_allclose(np.exp(orders.score(x).total), (first + second) / 2, rtol=1e-12)
    assert not np.allclose(first, second)
    # The second reads the columns the other way round.
    assert orders.members[1].model.columns == COLUMNS[::-1]
    plain = TableModel(orders.members[1].model).score(x[:, ::-1])
    np.testing.assert_array_equal(
        plain.log_density[:, ::-1], orders.members[1].score(x).log_density
    )


def test_it_integrates_to_one(orders: TableEnsemble) -> None:
    a, b = np.linspace(46, 54, 61), np.linspace(-24, 24, 121)
    assert mass(orders, a, b) == pytest.approx(1.0, abs=0.01)


def test_a_symmetry_is_applied_before_the_order(orders: TableEnsemble) -> None:
    """A shear of determinant one: the mixture is still a density."""
    shear = Symmetry(((1, 0), (1, 1)))
    sheared = TableEnsemble([member.behind(shear) for member in orders.members])
    rows = np.array([[49.0, -47.0], [50.0, -49.75]])
    mapped = rows @ np.array([[1.0, 1.0], [0.0, 1.0]])
    read = sheared.members[1].read(rows)
    np.testing.assert_array_equal(read, mapped[:, [1, 0]])
    np.testing.assert_array_equal(sheared.members[1].transform.inverse(read), rows)
    np.testing.assert_array_equal(sheared.score(rows).total, orders.score(mapped).total)
    a, b = np.linspace(45, 55, 61), np.linspace(-90, -10, 81)
    assert mass(sheared, a, b) == pytest.approx(1.0, abs=0.01)


def test_members_with_columns_of_every_kind_are_a_density() -> None:
    """Summed over a count, integrated over a heavy tail and a column far from zero.

    One member reads normal scores, one another order and an offset, one neither.
    """
    names = ("tail", "count")
    members = [
        table_of(names),
        table_of(names[::-1], treated=False).in_order(names),
        table_of(names, seed=2, treated=False),
    ]
    members[1] = members[1].behind(Offset((5.0, 0.0)))
    mixed = TableEnsemble(members)
    assert [len(member.transform.parts) for member in members] == [2, 3, 1]
    x = columns_of(names, 4000)[:, 0]
    # Trapezia that are fine where the rows are, and a far end that hardly anything is beyond.
    inner = np.quantile(x, np.linspace(0.02, 0.98, 151))
    reach = np.geomspace(1, 1e7, 60)
    tail = np.unique(np.concatenate((inner, np.linspace(-20, 20, 81), reach, -reach)))
    counts = np.arange(-4, 18)
    grid = np.stack(np.meshgrid(tail, counts, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(mixed.score(grid).total).reshape(len(tail), len(counts)).sum(1)
    assert np.trapezoid(density, tail) == pytest.approx(1.0, abs=0.02)


def test_columns_are_matched_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    mixed = ensemble()
    rows = rows_for(mixed)
    frame = pandas.DataFrame(rows, columns=list(NAMES))
    expected = mixed.score(rows)
    for order in (NAMES, NAMES[::-1]):
        found = mixed.score(frame[list(order)])
        np.testing.assert_array_equal(found.total, expected.total)
        np.testing.assert_array_equal(found.error, expected.error)


def test_samples_have_the_values_of_their_columns() -> None:
    mixed = ensemble()
    rows = mixed.sample(3000, seed=1)
    data = rows_for(mixed, 3000)
    assert rows.shape == (3000, len(NAMES))
    levels = rows[:, NAMES.index("level")]
    np.testing.assert_array_equal(levels, np.round(4 * levels) / 4)
    counts = rows[:, NAMES.index("count")]
    np.testing.assert_array_equal(counts, counts.round())
    times = rows[:, NAMES.index("time")]
    assert abs(times.mean() - data[:, 0].mean()) < 3 * data[:, 0].std()
    np.testing.assert_array_equal(mixed.sample(3000, seed=1), rows)
    assert not np.array_equal(mixed.sample(3000, seed=2), rows)


def test_members_draw_in_equal_shares() -> None:
    """Told apart by where they are: members of one model behind far offsets."""
    model = table_of(("size",), treated=False, moved=False)
    mixed = TableEnsemble([model.behind(Offset((1000.0 * place,))) for place in range(4)])
    rows = mixed.sample(4000, seed=0)[:, 0]
    place = np.round(rows / 1000)
    share = np.array([(place == number).mean() for number in range(4)])
    assert share.sum() == 1
    np.testing.assert_allclose(share, 0.25, atol=4 * math.sqrt(0.25 * 0.75 / 4000))
    assert np.abs(rows - 1000 * place).max() < 100
    # Which member draws a row has nothing to do with where it stands.
    assert len(np.flatnonzero(np.diff(place))) > 2000


def test_offsets_move_discrete_columns_too() -> None:
    model = table_of(("size", "count"), moved=False)
    moved = model.behind(Offset((0.0, 100.0)))
    rows = rows_for(model)
    there = moved.score(rows + np.array([0.0, 100.0])).total
    np.testing.assert_allclose(there, model.score(rows).total, rtol=1e-9)
    drawn = moved.sample(200, seed=0)
    np.testing.assert_array_equal(drawn[:, 1], drawn[:, 1].round())
    assert drawn[:, 1].min() > 80


def test_a_transform_must_not_bend_discrete_columns() -> None:
    model = table_of(("tail", "count"))
    (scores, _) = model.transform.parts
    swap = Symmetry(((0, 1), (1, 0)))
    for part, said in ((scores, "rescale"), (swap, "mix")):
        with pytest.raises(AemError, match=said):
            TableModel(model.model, Chain((part,)), [Discrete("tail", 0.0, 1.0, 9, 0.1, "")])
    whitened = untrained(
        SMALL.__class__(**{**SMALL.__dict__, "whiten": True}), columns_of(("size", "tail")), "ab"
    )
    with pytest.raises(AemError, match="mix"):
        TableModel(whitened, None, [Discrete("a", 0.0, 1.0, 9, 0.1, "")])
    with pytest.raises(AemError, match="there is no discrete column 'other'"):
        TableModel(model.model, model.transform, [Discrete("other", 0.0, 1.0, 9, 0.1, "")])


def test_terms_are_by_column_of_the_table() -> None:
    table = table_of(NAMES)
    other = table.in_order(NAMES[::-1])
    rows = rows_for(table)
    found, expected = other.score(rows[:, ::-1]), table.score(rows)
    np.testing.assert_array_equal(found.log_density[:, ::-1], expected.log_density)
    np.testing.assert_allclose(found.error, expected.error, rtol=1e-12)
    np.testing.assert_array_equal(other.sample(50, seed=1)[:, ::-1], table.sample(50, seed=1))
    assert other.in_order(NAMES).columns == NAMES
    assert table.in_order(NAMES) is table
    assert other.behind(Offset((1.0,) * len(NAMES))).exact is table.exact, "copies cost memory"


def test_errors_propagate() -> None:
    log_prob = torch.tensor([[0.0, -1.0], [-3.0, -1.0], [-50.0, -2.0]], dtype=torch.float64)
    error = torch.tensor([[1e-4, 2e-4], [3e-4, 1e-4], [10.0, 1e-4]], dtype=torch.float64)
    stated = mixture_error(log_prob, error)
    centre = mixture_log_prob(log_prob)
    for signs in torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3).double():
        small = torch.where(error > 1, 0.0, error)  # the absurd one has next to no share
        moved = mixture_log_prob(log_prob + signs[:, None] * small) - centre
        assert (moved.abs() <= stated * 1.001).all()
    assert float(stated[0]) < 2e-4, "a member without a share does not matter, however wrong"


def test_errors_where_no_member_has_density() -> None:
    log_prob = torch.full((2, 1), -math.inf)
    assert mixture_error(log_prob, torch.tensor([[0.1], [0.2]])).tolist() == [pytest.approx(0.2)]


def test_the_error_bounds_what_a_finer_quadrature_finds() -> None:
    for mixed in (ensemble(), turned()):
        rows = rows_for(mixed)
        rough, fine = mixed.score(rows), mixed.score(rows, tolerance=1e-7)
        assert (np.abs(rough.total - fine.total) <= rough.error + fine.error).all()
        assert fine.error.max() <= 1e-7 < rough.error.max()


def test_progress_is_of_all_members(orders: TableEnsemble) -> None:
    told: list[tuple[str, int, int]] = []
    rows = rows_for(orders, 20)
    orders.score(rows, lambda *what: told.append(what))
    assert told[-1] == ("rows", 40, 40)
    assert told == sorted(told)
    told.clear()
    orders.sample(20, seed=0, report=lambda *what: told.append(what))
    assert told[-1] == ("rows", 20, 20)


def test_members_must_agree(orders: TableEnsemble) -> None:
    first = orders.members[0]
    with pytest.raises(AemError, match="same columns"):
        TableEnsemble([first, TableModel(orders.members[1].model)])
    with pytest.raises(AemError, match="at least one"):
        TableEnsemble([])
    counted = TableModel(first.model, None, [Discrete("far", 50.0, 1.0, 3, 0.1, "")])
    with pytest.raises(AemError, match="disagree about which columns are discrete"):
        TableEnsemble([first, counted])


def test_a_model_is_one_of_its_columns_in_its_order(orders: TableEnsemble) -> None:
    model = orders.members[0].model
    with pytest.raises(AemError, match="other columns than the table, or another order"):
        TableModel(model, None, columns=COLUMNS[::-1])
    with pytest.raises(AemError, match="other columns than the table, or another order"):
        TableModel(model, Chain((Permutation((1, 0)),)))
    with pytest.raises(AemError, match="other columns"):
        TableModel(model).in_order(("far", "wide"))
    with pytest.raises(AemError, match="the order has 3 columns, the table 2"):
        TableModel(model, Chain((Permutation((1, 0, 2)),)))
    with pytest.raises(AemError, match="needs a context"):
        given = torch.zeros(1, dtype=torch.float64)
        config = SMALL.__class__(**{**SMALL.__dict__, "features": 2, "context_features": 1})
        TableModel(AEM(config, context_shift=given))


@pytest.mark.parametrize("count", [0, -1])
def test_how_many_rows_to_draw(orders: TableEnsemble, count: int) -> None:
    for table in (orders, orders.members[0]):
        with pytest.raises(AemError, match="rows to draw must be a positive whole one"):
            table.sample(count)
