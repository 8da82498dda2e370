"""Files of format 1 (aem 0.1) say the same in the present format, or what is damaged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aem import AEM, TableModel, load_model
from aem.base.files import FORMAT_VERSION, read_tensors, write_tensors
from aem.base.migrations import MIGRATIONS, to_current
from aem.base.settings import to_mapping
from aem.errors import AemError
from aem.model.files import content
from aem.model.transforms.normal_scores import NormalScores
from aem.model.transforms.offset import Offset
from aem.model.transforms.permutation import Permutation
from aem.model.transforms.symmetry import Symmetry
from aem.tables.ensemble import TableEnsemble
from aem.tables.files import load_table
from tests.support.tables import SMALL, untrained

Metadata = dict[str, Any]

HEADER: Metadata = {"format": "aem", "format_version": 1}
COLUMNS = ("width", "count")
DISCRETE = {"column": "count", "origin": 0.0, "step": 1.0, "cells": 3, "beyond": 0.1, "why": ""}
LENS = {"column": "width", "values": [0.0, 1.0], "scores": [-1.0, 1.0]}


@pytest.fixture(scope="module")
def model() -> AEM:
    rows = np.random.default_rng(0).normal(size=(200, 2)) * [3, 1]
    return untrained(SMALL, rows, COLUMNS)


def weights(model: AEM) -> dict[str, Tensor]:
    """By the names of 0.1, where a model itself held its standardisation."""
    return {name.removeprefix("standardisation."): t for name, t in model.state_dict().items()}


def write_1(model: AEM, path: Path, **about: Any) -> None:
    """A model as 0.1 saved it."""
    metadata = {
        **HEADER,
        "kind": "model",
        "columns": list(model.columns),
        "config": to_mapping(model.config),
        "about": about,
    }
    write_tensors(path, weights(model), metadata)


def write_ensemble_1(model: AEM, path: Path, *members: Metadata) -> None:
    """Members that are all the same model."""
    tensors = {f"{i}.{k}": t for i in range(len(members)) for k, t in weights(model).items()}
    config = to_mapping(model.config)
    metadata = {
        **HEADER,
        "kind": "ensemble",
        "columns": list(COLUMNS),
        "members": [{"config": config, "symmetry": None, "lenses": [], **m} for m in members],
        "about": {"task": "test"},
    }
    write_tensors(path, tensors, metadata)


def test_every_earlier_version_has_a_way_to_the_present_one() -> None:
    assert sorted(MIGRATIONS) == list(range(1, FORMAT_VERSION))


def test_what_was_among_the_remarks_has_keys_of_its_own(model: AEM, tmp_path: Path) -> None:
    path = tmp_path / "old.aem"
    write_1(model, path, rows=9, discrete=[DISCRETE], lenses=[LENS], offsets={"width": 1e9})
    tensors, metadata = read_tensors(path, "model")
    assert tensors.keys() == model.state_dict().keys()
    points = {"values": [0.0, 1.0], "scores": [-1.0, 1.0]}
    own = {key: value for key, value in DISCRETE.items() if key != "column"}
    assert metadata == {
        "format": "aem",
        "format_version": 2,
        "kind": "model",
        "columns": [
            {"name": "width", "kind": "number"},
            {"name": "count", "kind": "discrete", **own},
        ],
        "transforms": [
            {"kind": "normal_scores", "column": 0, **points},
            {"kind": "offset", "offsets": [1e9, 0.0]},
        ],
        "model": {"config": json.loads(json.dumps(to_mapping(model.config)))},
        "about": {"rows": 9},
    }
    table = TableModel.load(path)
    assert table.transform.parts == (
        NormalScores(0, (0.0, 1.0), (-1.0, 1.0)),
        Offset((1e9, 0.0)),
    )
    assert [column.column for column in table.discrete] == ["count"]


@pytest.mark.parametrize("version", [1, 2])
def test_columns_left_out_of_the_fit_are_still_known(
    version: int, model: AEM, tmp_path: Path
) -> None:
    """Files of both formats named them in `about` before they had a key of their own."""
    path, bare = tmp_path / "old.aem", tmp_path / "bare.aem"
    if version == 1:
        write_1(model, path, dropped=["name"])
    else:
        about = {"dropped": ["name"]}
        write_tensors(path, model.state_dict(), {**content(model), "about": about})
    table = TableModel.load(path)
    assert table.left_out == ("name",)
    table.about.clear()
    table.save(bare)
    assert TableModel.load(bare).left_out == ("name",)
    TableEnsemble([table, table.behind(Offset((1.0, 0.0)))]).save(bare)
    assert load_table(bare).left_out == ("name",)
    tensors, metadata = read_tensors(path, "model")
    write_tensors(path, tensors, {**metadata, "left_out": "name"})
    with pytest.raises(AemError, match="'left_out' is not a list of names"):
        TableModel.load(path)


def test_a_plain_model_is_the_one_it_was(model: AEM, tmp_path: Path) -> None:
    path = tmp_path / "old.aem"
    write_1(model, path)
    rows = torch.randn(5, 2)
    assert torch.equal(load_model(path)().log_prob(rows), model().log_prob(rows))


def test_a_prior_says_that_it_is_one(model: AEM, tmp_path: Path) -> None:
    path = tmp_path / "prior.aem"
    write_1(model, path, task="vae", stage_one="abc")
    _, metadata = read_tensors(path, "prior")
    assert (metadata["encoder"], metadata["about"]) == ("abc", {"task": "vae"})


def test_members_of_an_ensemble_have_chains(model: AEM, tmp_path: Path) -> None:
    """The symmetry first, then the order, then the normal scores of the columns in that order."""
    path = tmp_path / "old.aem"
    turned = untrained(SMALL, np.random.default_rng(0).normal(size=(200, 2)), COLUMNS[::-1])
    write_ensemble_1(
        turned, path, {"order": [1, 0], "symmetry": [[0, 1], [-1, 0]], "lenses": [LENS]}
    )
    found = load_table(path)
    assert isinstance(found, TableEnsemble)
    assert found.columns == COLUMNS
    assert found.about == {"task": "test"}
    assert found.members[0].transform.parts == (
        Symmetry(((0, 1), (-1, 0))),
        Permutation((1, 0)),
        NormalScores(1, (0.0, 1.0), (-1.0, 1.0)),
    )
    assert found.members[0].model.columns == COLUMNS[::-1]


def test_only_the_standardisation_of_an_aem_was_renamed() -> None:
    one = torch.zeros(1)
    names = ("prior.shift", "prior.scale", "prior.slopes", "prior.context_shift", "encoder.scale")
    tensors, metadata = to_current(dict.fromkeys(names, one), {"kind": "checkpoint"}, 1)
    assert set(tensors) == {
        "prior.standardisation.shift",
        "prior.standardisation.scale",
        "prior.standardisation.slopes",
        "prior.context_shift",
        "encoder.scale",
    }
    assert metadata == {"kind": "checkpoint", "format_version": FORMAT_VERSION}
    tensors, _ = to_current(dict.fromkeys(names, one), {"kind": "checkpoint"}, FORMAT_VERSION)
    assert set(tensors) == set(names)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"discrete": 1}, ""),
        ({"discrete": [1]}, ""),
        ({"discrete": [{"column": "count"}]}, ""),
        ({"discrete": [{**DISCRETE, "column": "none"}]}, "there is no column 'none'"),
        ({"discrete": [{**DISCRETE, "step": 0}]}, "discrete column 'count' is damaged"),
        ({"discrete": [{**DISCRETE, "step": "1"}]}, ""),
        ({"discrete": [{**DISCRETE, "cells": 0}]}, "discrete column 'count' is damaged"),
        ({"discrete": [{**DISCRETE, "beyond": 0}]}, "discrete column 'count' is damaged"),
        ({"discrete": [{**DISCRETE, "values": [float("nan")]}]}, "'count' is damaged"),
        ({"lenses": [{}]}, "'column' is missing"),
        ({"lenses": [{"column": "width"}]}, "'values' is missing"),
        ({"lenses": [{**LENS, "column": "none"}]}, "there is no column 'none'"),
        ({"lenses": [{**LENS, "values": [0], "scores": [0]}]}, "of column 1 is damaged"),
        ({"lenses": [{**LENS, "values": [0, 1, 2]}]}, "of column 1 is damaged"),
        ({"lenses": [{**LENS, "scores": [1, -1]}]}, "of column 1 is damaged"),
        ({"offsets": [1]}, "no column '1'"),
        ({"offsets": {"none": 1}}, "there is no column 'none'"),
        ({"offsets": {"width": "far"}}, "the transform 'offset' is damaged"),
    ],
)
def test_damaged_columns_are_refused(
    about: Metadata, said: str, model: AEM, tmp_path: Path
) -> None:
    path = tmp_path / "old.aem"
    write_1(model, path, **about)
    with pytest.raises(AemError, match=f"{path} does not hold a complete model: .*{said}"):
        TableModel.load(path)


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ({"order": [0, 7]}, ""),
        ({"order": ["width", "count"]}, ""),
        ({"order": [0, 0]}, "column"),
        ({"order": [1, 0], "symmetry": [[1, 0], [1]]}, "square matrix"),
        ({"order": [1, 0], "symmetry": [[1]]}, "the symmetry has 1 columns, the table 2"),
        ({"order": [1, 0], "symmetry": [["a", "b"], ["c", "d"]]}, "'symmetry' is damaged"),
        ({"order": [1, 0], "lenses": {"column": "width"}}, ""),
        ({"order": [1, 0], "lenses": [{**LENS, "scores": [0.0, 0.0]}]}, "is damaged"),
        ({"order": [1, 0], "lenses": [{**LENS, "column": "none"}]}, "there is no column 'none'"),
    ],
)
def test_damaged_members_are_refused(
    member: Metadata, said: str, model: AEM, tmp_path: Path
) -> None:
    path = tmp_path / "old.aem"
    write_ensemble_1(model, path, member)
    with pytest.raises(AemError, match=f"{path} does not hold a complete ensemble: .*{said}"):
        load_table(path)


@pytest.mark.parametrize("columns", ["width", [1, 2], None])
def test_columns_are_names(columns: object, model: AEM, tmp_path: Path) -> None:
    path = tmp_path / "old.aem"
    metadata = {**HEADER, "kind": "model", "columns": columns, "config": to_mapping(model.config)}
    write_tensors(path, weights(model), metadata)
    for load in (load_model, TableModel.load):
        with pytest.raises(AemError, match=f"{path} does not .*: 'columns' is not a list of names"):
            load(path)


def test_a_setting_that_is_gone_is_named(model: AEM, tmp_path: Path) -> None:
    path = tmp_path / "old.aem"
    config = {**to_mapping(model.config), "energy_input": "residual"}
    metadata = {**HEADER, "kind": "model", "columns": list(COLUMNS), "config": config}
    write_tensors(path, weights(model), metadata)
    with pytest.raises(AemError, match="'energy_input' is no longer a setting"):
        load_model(path)
