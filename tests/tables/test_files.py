"""Files of models of tables: whole, with a key for each thing they hold, or refused in a sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from aem import AEMDensity, AEMOutlierDetector, TableModel, load_model
from aem.base.files import FORMAT_VERSION, read_tensors, write_tensors
from aem.errors import AemError
from aem.model.files import OF_A_TABLE, model_information
from aem.model.transforms.base import Chain
from aem.model.transforms.records import KINDS
from aem.tables.ensemble import TableEnsemble
from aem.tables.files import load_table
from aem.vae import load_prior, save_prior
from tests.support.tables import (
    ENSEMBLES,
    MODELS,
    NAMES,
    ensemble,
    rows_for,
    sizes,
    table_of,
    unnamed,
)
from tests.support.transforms import Asinh

Metadata = dict[str, Any]
Change = Callable[[Metadata], object]

EVERY: dict[str, Callable[[], TableModel | TableEnsemble]] = {**MODELS, **ENSEMBLES}
every = pytest.mark.parametrize("name", EVERY)
ENCODER = torch.nn.Linear(3, 2)


def write_prior(path: Path) -> None:
    save_prior(unnamed().model, ENCODER, path, epochs=3)


def write_detector(path: Path) -> None:
    detector = AEMOutlierDetector(contamination=0.05, components=2)
    detector.fit(sizes(150, 1)[:, [1, 3]]).save(path)


WRITERS: dict[str, Callable[[Path], None]] = {
    "model": lambda path: table_of(NAMES).save(path),
    "ensemble": lambda path: ensemble().save(path),
    "detector": write_detector,
    "prior": write_prior,
}
kinds = pytest.mark.parametrize("kind", WRITERS)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("originals")
    for kind, write in WRITERS.items():
        write(folder / kind)
    return folder


@pytest.fixture
def file(originals: Path, kind: str, tmp_path: Path) -> Path:
    """A copy of one of them."""
    return Path(shutil.copy(originals / kind, tmp_path / "file.aem"))


def rewritten(path: Path, change: Change) -> None:
    """Save the file again after a change to its metadata."""
    tensors, metadata = read_tensors(path, *OF_A_TABLE, "ensemble")
    change(metadata)
    write_tensors(path, tensors, metadata)


def answers(table: TableModel | TableEnsemble) -> list[np.ndarray]:
    """Scores, errors and draws."""
    scores = table.score(rows_for(table))
    return [scores.total, scores.error, table.sample(50, seed=3)]


def assert_same(a: TableModel | TableEnsemble, b: TableModel | TableEnsemble) -> None:
    assert type(a) is type(b)
    assert a.columns == b.columns
    assert a.discrete == b.discrete
    for found, expected in zip(answers(a), answers(b), strict=True):
        np.testing.assert_array_equal(found, expected)


@every
def test_a_loaded_table_is_the_saved_one_bit_for_bit(name: str, tmp_path: Path) -> None:
    path, table = tmp_path / "new folder" / "table.aem", EVERY[name]()
    table.save(path)
    again = load_table(path)
    assert_same(again, table)
    assert again.about == table.about
    again.save(tmp_path / "again.aem")
    assert (
        read_tensors(tmp_path / "again.aem", *OF_A_TABLE, "ensemble")[1]
        == (read_tensors(path, *OF_A_TABLE, "ensemble")[1])
    )


@every
def test_what_a_file_says_about_itself_decides_nothing(name: str, tmp_path: Path) -> None:
    path, table = tmp_path / "table.aem", EVERY[name]()
    table.about["lenses"] = table.about["offsets"] = "what format 1 called them"
    table.save(path)
    rewritten(path, lambda metadata: metadata.update(about={}))
    again = load_table(path)
    assert again.about == {}
    assert_same(again, table)
    rewritten(path, lambda metadata: metadata.pop("about"))
    assert_same(load_table(path), table)


def test_nothing_a_detector_needs_is_in_its_remarks(tmp_path: Path) -> None:
    x = sizes(120, 1)[:, [1, 3]]
    detector = AEMOutlierDetector(contamination=0.07, components=2).fit(x)
    detector.save(tmp_path / "d.aem")
    rewritten(tmp_path / "d.aem", lambda metadata: metadata.update(about={}))
    again = AEMOutlierDetector.load(tmp_path / "d.aem")
    assert (again.contamination, again.offset_) == (0.07, detector.offset_)
    np.testing.assert_array_equal(again.decision_function(x), detector.decision_function(x))


def test_nothing_a_prior_needs_is_in_its_remarks(tmp_path: Path) -> None:
    path = tmp_path / "prior.aem"
    write_prior(path)
    rewritten(path, lambda metadata: metadata.update(about={}))
    latents = torch.randn(7, 2)
    expected = unnamed().model().log_prob(latents)
    assert torch.equal(load_prior(path, ENCODER)().log_prob(latents), expected)
    with pytest.raises(AemError, match="was fitted to another stage one"):
        load_prior(path, torch.nn.Linear(3, 2))
    rewritten(path, lambda metadata: metadata.pop("encoder"))
    with pytest.raises(AemError, match="does not say which stage one"):
        load_prior(path, ENCODER)


def test_every_thing_has_a_key_of_its_own(tmp_path: Path) -> None:
    table = table_of(NAMES)
    table.save(tmp_path / "table.aem")
    with safe_open(tmp_path / "table.aem", framework="pt") as file:
        header = {key: json.loads(text) for key, text in file.metadata().items()}
        tensors = set(file.keys())
    assert header.keys() == {
        "format", "format_version", "kind", "columns", "transforms", "model", "left_out", "about",
    }  # fmt: skip
    assert (header["format"], header["format_version"], header["kind"]) == ("aem", 2, "model")
    assert [column["name"] for column in header["columns"]] == list(NAMES)
    assert [column["kind"] for column in header["columns"]] == [*["number"] * 3, *["discrete"] * 2]
    assert [record["kind"] for record in header["transforms"]] == ["normal_scores", "offset"]
    assert header["model"].keys() == {"config"}
    assert header["about"] == table.about
    assert tensors == set(table.model.state_dict())


@kinds
def test_a_file_says_what_it_holds(kind: str, file: Path) -> None:
    found = model_information(file)
    assert (found["kind"], found["format_version"]) == (kind, FORMAT_VERSION)
    assert isinstance(load_table(file), TableEnsemble if kind == "ensemble" else TableModel)


def test_a_plain_model_is_read_as_one_and_others_say_what_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "table.aem"
    MODELS["plain"]().save(path)
    x = torch.randn(5, 1)
    assert torch.equal(load_model(path)().log_prob(x), MODELS["plain"]().model().log_prob(x))
    for name, what in (
        ("discrete", "discrete columns"),
        ("offset", "columns that it transforms"),
        ("normal scores", "columns that it transforms"),
    ):
        MODELS[name]().save(path)
        with pytest.raises(AemError, match=f"{path} has {what}: load it with aem.TableModel.load"):
            load_model(path)


def test_a_file_is_of_the_kind_that_is_asked_for(originals: Path, tmp_path: Path) -> None:
    paths = {kind: originals / kind for kind in WRITERS}
    for load in (TableModel.load, AEMDensity.load, load_model):
        with pytest.raises(AemError, match="ensemble is not an aem model file: it holds an ensemb"):
            load(paths["ensemble"])
    for kind in ("ensemble", "prior"):
        with pytest.raises(
            AemError, match=f"{kind} is not an aem detector file: it holds an? {kind}"
        ):
            AEMOutlierDetector.load(paths[kind])
    with pytest.raises(AemError, match="model holds a density without a threshold"):
        AEMOutlierDetector.load(paths["model"])
    other = tmp_path / "checkpoint"
    write_tensors(other, {"a": torch.zeros(1)}, {**HEADER, "kind": "checkpoint"})
    for read in (*LOADERS["model"], *LOADERS["detector"]):
        with pytest.raises(AemError, match=f"{other} is not .*: it holds a checkpoint"):
            read(other)


HEADER = {"format": "aem", "format_version": FORMAT_VERSION}
LOADERS: dict[str, tuple[Callable[[Path], object], ...]] = {
    "model": (load_table, TableModel.load, AEMDensity.load),
    "ensemble": (load_table,),
    "detector": (load_table, TableModel.load, AEMDensity.load, AEMOutlierDetector.load),
    "prior": (load_table, TableModel.load, AEMDensity.load, lambda path: load_prior(path, ENCODER)),
}


def refused(load: Callable[[Path], object], path: Path) -> str:
    """The one sentence that names the file."""
    with pytest.raises(AemError) as error:
        load(path)
    sentence = str(error.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence


@kinds
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_files(kind: str, share: float, file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    for load in LOADERS[kind]:
        assert "file, or a damaged one" in refused(load, file)


@kinds
def test_foreign_and_missing_files(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file.aem"
    for load in LOADERS[kind]:
        assert "there is no" in refused(load, path)
    path.write_bytes(np.random.default_rng(0).bytes(4096))
    for load in LOADERS[kind]:
        assert "file, or a damaged one" in refused(load, path)
    write_tensors(path, {"a": torch.zeros(1)}, {"format": "gguf", "kind": "model"})
    for load in LOADERS[kind]:
        assert "is not an aem" in refused(load, path)


@kinds
@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 99, "2", None])
def test_files_from_the_future(kind: str, version: object, file: Path) -> None:
    rewritten(file, lambda metadata: metadata.update(format_version=version))
    for load in LOADERS[kind]:
        said = refused(load, file)
        assert f"has format version {version}; this aem reads up to {FORMAT_VERSION}" in said


def entries(metadata: Metadata) -> list[Metadata]:
    """Of each model in a file."""
    found: list[Metadata] = metadata.get("members", [metadata])
    return found


NEWER: dict[str, tuple[Change, str]] = {
    "transform": (
        lambda m: entries(m)[-1]["transforms"].append({"kind": "spline", "knots": [1]}),
        "no transform 'spline'; known: .*newer version",
    ),
    "column": (
        lambda m: m["columns"][0].update(kind="category"),
        "is of kind 'category', which this aem does not know: .*newer version",
    ),
    "proposal": (
        lambda m: entries(m)[-1]["model"]["config"].update(proposal="hyperbolic"),
        "'hyperbolic'.*newer version",
    ),
    "setting": (
        lambda m: entries(m)[-1]["model"]["config"].update(depth=3),
        "unknown key 'depth'.*newer version",
    ),
}


@kinds
@pytest.mark.parametrize("what", NEWER)
def test_things_that_only_a_newer_version_knows(kind: str, what: str, file: Path) -> None:
    change, said = NEWER[what]
    rewritten(file, change)
    for load in LOADERS[kind]:
        if kind == "prior" and what in ("transform", "column") and load is LOADERS["prior"][-1]:
            assert "load it with aem.TableModel.load" in refused(load, file)
        else:
            with pytest.raises(AemError, match=f"{file} does not hold a complete .*{said}"):
                load(file)


DISCRETE = {
    "name": "count", "kind": "discrete", "origin": 0.0, "step": 1.0, "cells": 3, "beyond": 0.1,
    "why": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"origin": None}, ""),
        ({"origin": float("nan")}, "discrete column 'count' is damaged"),
        ({"step": 0}, "discrete column 'count' is damaged"),
        ({"step": "1"}, ""),
        ({"cells": 0}, "discrete column 'count' is damaged"),
        ({"beyond": 0}, "discrete column 'count' is damaged"),
        ({"values": [float("nan")]}, "discrete column 'count' is damaged"),
        ({"values": 1}, ""),
        ({"other": 1}, ""),
    ],
)
def test_damaged_discrete_columns(change: Metadata, said: str, tmp_path: Path) -> None:
    path = tmp_path / "table.aem"
    MODELS["discrete"]().save(path)
    rewritten(path, lambda metadata: metadata["columns"].__setitem__(1, {**DISCRETE, **change}))
    with pytest.raises(AemError, match=f"{path} does not hold a complete model: .*{said}"):
        TableModel.load(path)


def lose(name: str) -> Change:
    return lambda metadata: metadata.pop(name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lose("columns"), "'columns' is missing"),
        (lose("transforms"), "'transforms' is missing"),
        (lose("model"), "'model' is missing"),
        (lambda m: m.update(columns=[]), ""),
        (lambda m: m["columns"].pop(), "2 offsets|column|order"),
        (lambda m: m["columns"][0].update(name="size"), "more than one column 'size'"),
        (lambda m: m.update(transforms={}), "'transforms' is not a list"),
        (lambda m: m["transforms"][0].pop("scores"), "'normal_scores' is damaged"),
        (lambda m: m["transforms"][0].update(column=9), "of column 10 does not belong"),
        (lambda m: m["transforms"][0].update(column=3), "rescale the discrete column 'count'"),
        (lambda m: m["transforms"][1]["offsets"].pop(), "4 offsets for 5 columns"),
        (lambda m: m["transforms"][1].update(offsets="far"), "'offset' is damaged"),
        (lambda m: m.update(about=[1]), "'about' is not a table of keys"),
        (
            lambda m: m["transforms"].append({"kind": "symmetry", "matrix": np.eye(5).tolist()}),
            "symmetry' is damaged|mix discrete columns",
        ),
        (
            lambda m: m["transforms"].append(
                {"kind": "symmetry", "matrix": np.eye(5, dtype=int).tolist()}
            ),
            "would mix discrete columns",
        ),
    ],
)
def test_damaged_tables(change: Change, said: str, tmp_path: Path) -> None:
    path = tmp_path / "table.aem"
    MODELS["all"]().save(path)
    rewritten(path, change)
    with pytest.raises(AemError, match=f"{path} does not hold a complete model: .*({said})"):
        TableModel.load(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lose("members"), "'members' is missing"),
        (lambda m: m.update(members=[]), "at least one member"),
        (lambda m: m.update(members=[1]), "'members' is not a table of keys"),
        (lambda m: m.update(members=m["members"][:1] * 4), "is missing"),
        (lambda m: m["members"][0].pop("transforms"), "'transforms' is missing"),
        (lambda m: m["members"][0]["model"].update(config=[1]), "'config' is not a table of keys"),
        (lambda m: m["members"][1]["transforms"][0].update(order=[0, 1, 2, 3, 9]), "each column"),
        (lambda m: m["members"][1]["transforms"][0].update(order=[0, 1]), "order has 2 columns"),
        (lambda m: m["members"][1]["transforms"][0].update(order=list("abcde")), "is damaged"),
    ],
)
def test_damaged_ensembles(change: Change, said: str, tmp_path: Path) -> None:
    path = tmp_path / "ensemble.aem"
    ensemble().save(path)
    rewritten(path, change)
    with pytest.raises(AemError, match=f"{path} does not hold a complete ensemble: .*{said}"):
        load_table(path)


def test_a_member_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "ensemble.aem"
    ensemble().save(path)
    tensors, metadata = read_tensors(path, "ensemble")
    some: dict[str, Tensor] = {k: v for k, v in tensors.items() if k != "2.energy.final.weight"}
    write_tensors(path, some, metadata)
    assert "energy.final.weight" in refused(load_table, path)


def test_a_transform_of_ones_own_goes_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line of registration; without it the file says what is missing."""
    path, other = tmp_path / "table.aem", MODELS["plain"]()
    table = TableModel(other.model, Chain((Asinh(0),)))
    table.save(path)
    assert "no transform 'asinh'" in refused(load_table, path)
    monkeypatch.setitem(KINDS, Asinh.kind, Asinh)
    assert_same(load_table(path), table)
    x = np.array([[1.5]])
    own = other.score(np.arcsinh(x)).total - 0.5 * np.log1p(x[0, 0] ** 2)
    np.testing.assert_allclose(table.score(x).total, own, rtol=1e-12)


def test_types_of_columns_are_kept_and_unknown_ones_ignored(tmp_path: Path) -> None:
    table, path = table_of(("size", "count")), tmp_path / "m.aem"
    table.save(path)
    assert TableModel.load(path).dtypes == {}
    table.dtypes = {"size": "float32", "count": "int64"}
    table.save(path)
    found = TableModel.load(path)
    assert found.dtypes == found.in_order(("count", "size")).dtypes == table.dtypes
    tensors, metadata = read_tensors(path, "model")
    write_tensors(path, tensors, {**metadata, "dtypes": {"size": "date", "count": "int64"}})
    assert TableModel.load(path).dtypes == {"count": "int64"}
    write_tensors(path, tensors, {**metadata, "dtypes": "int64"})
    with pytest.raises(AemError, match="'dtypes' is not a table of keys"):
        TableModel.load(path)
