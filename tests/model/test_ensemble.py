"""Mixtures over column orders: a density, with an error, in one file."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from aem.model.ensemble import (
    Ensemble,
    Member,
    column_orders,
    load_ensemble,
    mixture_error,
    mixture_log_prob,
    save_ensemble,
)
from torch import nn

from aem.base.files import read_tensors, write_tensors
from aem.config import ModelConfig
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.files import save_model
from aem.model.transforms.normal_scores import Lens

SMALL = ModelConfig(hidden=8, blocks=1, gamma=4, energy_hidden=8, energy_blocks=1, components=2)
COLUMNS = ("far", "near")
ONE_POINT = {"column": "near", "values": [0.0], "scores": [0.0]}


@pytest.fixture
def ensemble(randomise: Callable[[nn.Module], None]) -> Ensemble:
    """Two orders of two columns of very different place and width."""
    rows = np.random.default_rng(0).normal(size=(200, 2)) * [0.5, 2.0] + [50.0, 0.0]
    members = []
    for order in ((0, 1), (1, 0)):
        columns = [COLUMNS[i] for i in order]
        model = AEM.for_data(SMALL, rows[:, list(order)], columns=columns).eval()
        for parameter in model.energy.parameters():
            nn.init.normal_(parameter, 0, 0.3)
        members.append(Member(model, order))
    return Ensemble(members, COLUMNS)


def test_orders_are_permutations_that_do_not_depend_on_their_number() -> None:
    orders = column_orders(7, 4, seed=3)
    assert orders[0] == tuple(range(7))
    assert all(sorted(order) == list(range(7)) for order in orders)
    assert len(set(orders)) == 4
    assert column_orders(7, 2, seed=3) == orders[:2]
    assert column_orders(7, 4, seed=4) != orders


def test_arranging_and_restoring(ensemble: Ensemble) -> None:
    model = AEM(ModelConfig(**{**SMALL.__dict__, "features": 3}))
    member = Member(model, (2, 0, 1))
    rows = torch.tensor([[10.0, 11.0, 12.0]])
    assert member.arrange(rows).tolist() == [[12.0, 10.0, 11.0]]
    assert torch.equal(member.restore(member.arrange(rows)), rows)
    with pytest.raises(AemError, match="order"):
        Member(model, (0, 0, 1))


def test_a_symmetry_is_applied_before_the_order(ensemble: Ensemble, tmp_path: Path) -> None:
    """A shear of determinant one: the mixture is still a density, in any file."""
    shear = np.array([[1, 0], [1, 1]])
    sheared = Ensemble([replace(m, symmetry=shear) for m in ensemble.members], COLUMNS)
    rows = torch.tensor([[49.0, -47.0], [50.0, -49.75]], dtype=torch.float64)
    mapped = rows @ torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    assert torch.equal(sheared.members[1].arrange(rows), mapped[:, [1, 0]])
    for member in sheared.members:
        assert torch.equal(member.restore(member.arrange(rows)), rows)
    assert torch.equal(sheared.log_prob(rows), ensemble.log_prob(mapped))
    a = torch.linspace(40, 60, 161, dtype=torch.float64)
    b = torch.linspace(-90, -10, 161, dtype=torch.float64)
    grid = torch.cartesian_prod(a, b)
    total = sheared.log_prob(grid).exp().sum() * (a[1] - a[0]) * (b[1] - b[0])
    assert float(total) == pytest.approx(1.0, abs=0.01)
    save_ensemble(sheared, tmp_path / "sheared.safetensors")
    again = load_ensemble(tmp_path / "sheared.safetensors")
    assert torch.equal(again.log_prob(rows), sheared.log_prob(rows))
    with pytest.raises(AemError, match="volumes"):
        replace(ensemble.members[0], symmetry=2 * shear)


def test_a_lens_keeps_the_mixture_a_density(ensemble: Ensemble, tmp_path: Path) -> None:
    """What a member sees through a lens it scores in the units of the table, in any file."""
    first, second = ensemble.members
    spread = torch.from_numpy(np.random.default_rng(1).standard_t(2, size=2000))
    lens = Lens.of("near", spread.numpy())
    assert lens is not None
    rows = torch.tensor([[49.0, -1.0], [50.5, 3.0]], dtype=torch.float64)
    seen = replace(second, lenses=(lens,))
    assert torch.equal(seen.arrange(rows)[:, 1], rows[:, 0])
    assert np.array_equal(seen.arrange(rows)[:, 0].numpy(), lens(rows[:, 1].numpy()))
    torch.testing.assert_close(seen.restore(seen.arrange(rows)), rows)
    mixed = Ensemble([first, seen], COLUMNS)
    save_ensemble(mixed, tmp_path / "mixed.safetensors")
    again = load_ensemble(tmp_path / "mixed.safetensors")
    torch.testing.assert_close(again.log_prob(rows), mixed.log_prob(rows))
    near = torch.linspace(-60, 60, 1201, dtype=torch.float64)
    far = torch.linspace(45, 55, 201, dtype=torch.float64)
    grid = torch.cartesian_prod(far, near)
    density = mixed.log_prob(grid).exp().view(len(far), len(near))
    mass = torch.trapezoid(torch.trapezoid(density, near), far)
    assert float(mass) == pytest.approx(1, abs=0.01)


def test_it_is_the_mean_of_the_members_densities(ensemble: Ensemble) -> None:
    x = torch.tensor([[50.2, 0.3], [49.0, -4.0]], dtype=torch.float64)
    each = torch.stack([m.model().log_prob(m.arrange(x)).exp() for m in ensemble.members])
    assert torch.allclose(ensemble.log_prob(x), each.mean(0).log(), atol=1e-9)
    assert not torch.allclose(each[0], each[1])


def test_it_integrates_to_one(ensemble: Ensemble) -> None:
    a = torch.linspace(40, 60, 161, dtype=torch.float64)
    b = torch.linspace(-40, 40, 161, dtype=torch.float64)
    grid = torch.cartesian_prod(a, b)
    total = ensemble.log_prob(grid).exp().sum() * (a[1] - a[0]) * (b[1] - b[0])
    assert float(total) == pytest.approx(1.0, abs=0.01)


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


def test_samples_have_the_columns_of_the_table(ensemble: Ensemble) -> None:
    rows = ensemble.sample(200)
    assert rows.shape == (200, 2)
    assert float(rows[:, 0].min()) > 45
    assert float(rows[:, 1].max()) < 30


def test_one_file(ensemble: Ensemble, tmp_path: Path) -> None:
    path = tmp_path / "ensemble.safetensors"
    save_ensemble(ensemble, path, task="test")
    again = load_ensemble(path)
    x = torch.tensor([[50.2, 0.3]])
    assert torch.equal(again.log_prob(x), ensemble.log_prob(x))
    assert again.columns == ensemble.columns
    save_model(ensemble.members[0].model, tmp_path / "model.safetensors")
    with pytest.raises(AemError, match="not an aem ensemble file"):
        load_ensemble(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("members"), "'members' is missing"),
        (lambda m: m.update(members=[]), "at least one member"),
        (lambda m: m.update(members=[1]), ""),
        (lambda m: m.update(columns=[1, 2]), "'columns' is not a list of names"),
        (lambda m: m["members"][0].update(config=[1]), "'config' is not a table of keys"),
        (lambda m: m["members"][0]["config"].update(zzz=1), "'zzz'; .* newer version of aem$"),
        (lambda m: m["members"][0].update(order=[0, 7]), ""),
        (lambda m: m["members"][0].update(order=["far", "near"]), ""),
        (lambda m: m["members"][0].update(symmetry=[[1, 0], [1]]), ""),
        (lambda m: m["members"][0].update(symmetry=[[1]]), "a symmetry must have a row"),
        (lambda m: m["members"][0].update(symmetry=[["a", "b"], ["c", "d"]]), ""),
        (lambda m: m["members"][0].update(lenses={"column": "far"}), ""),
        (lambda m: m["members"][0].update(lenses=[ONE_POINT]), "lens of column 'near' is damaged"),
    ],
)
def test_damaged_files_are_refused(
    ensemble: Ensemble, tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = tmp_path / "ensemble.safetensors"
    save_ensemble(ensemble, path)
    tensors, metadata = read_tensors(path, "ensemble")
    change(metadata)
    write_tensors(path, tensors, metadata)
    with pytest.raises(AemError, match=f"{path} does not hold a complete ensemble: .*{message}"):
        load_ensemble(path)


def test_members_must_agree(ensemble: Ensemble) -> None:
    with pytest.raises(AemError, match="same columns"):
        Ensemble([Member(ensemble.members[0].model, (1, 0))], COLUMNS)
    with pytest.raises(AemError, match="at least one"):
        Ensemble([], COLUMNS)
