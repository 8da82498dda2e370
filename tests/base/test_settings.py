import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aem.base.settings import (
    Settings,
    from_mapping,
    merge,
    parse_assignment,
    read_toml,
    setting,
    to_mapping,
    to_toml,
    unusual,
)
from aem.config import ModelConfig, TrainConfig
from aem.errors import AemError
from aem.paper.plane.config import ExperimentConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trian": {}}, "unknown key 'trian'; known: task, model, train"),
        ({"train": {"step": 1}}, "unknown key 'train.step'; known: train.steps"),
        ({"train": 3}, "'train' must be a table of keys"),
        ({"train": {"steps": "many"}}, "'train.steps' must be a whole number, not 'many'"),
        ({"train": {"steps": 1.5}}, "'train.steps' must be a whole number, not 1.5"),
        ({"train": {"steps": True}}, "'train.steps' must be a whole number, not True"),
        ({"train": {"stratified": 1}}, "'train.stratified' must be true or false, not 1"),
        ({"train": {"clip": "5"}}, "'train.clip' must be a number, not '5'"),
        ({"train": {"device": 0}}, "'train.device' must be text, not 0"),
        ({"train": {"estimator": "best"}}, "'train.estimator' must be one of importance, ranking"),
        ({"model": {"bounds": 3}}, "'model.bounds' must be a list, not 3"),
        ({"model": {"bounds": [[0, 1, 2]]}}, "'model.bounds' must have 2 entries, not 3"),
        ({"model": {"bounds": [["low", 1]]}}, "'model.bounds' must be a number, not 'low'"),
        ({"train": {"steps": 0}}, "train: 'steps' must be positive, not 0"),
        ({"train": {"learning_rate": float("nan")}}, "'learning_rate' must be positive, not nan"),
        ({"train": {"nodes": 1}}, "'nodes' must be at least 2, not 1"),
        ({"train": {"averaging": 1.0}}, "'averaging' must lie in [0, 1), not 1.0"),
        ({"train": {"patience": -1}}, "'patience' must not be negative, not -1"),
        ({"model": {"dropout": 1.0}}, "'dropout' must lie in [0, 1), not 1.0"),
        ({"model": {"proposal": "uniform"}}, "proposal 'uniform' needs 'bounds'"),
        (
            {"model": {"proposal": "student_t", "degrees_of_freedom": 0.5}},
            "'degrees_of_freedom' must lie in [1, 100], not 0.5",
        ),
        (
            {"model": {"proposal": "gaussian"}},
            "'proposal' must be one of mixture, anchored, uniform",
        ),
        (
            {"model": {"energy_input": "residual"}},
            "'model.energy_input' is no longer a setting: only 'value' is left of it",
        ),
    ],
)
def test_bad_settings_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(AemError, match=re.escape(message)):
        from_mapping(ExperimentConfig, values)


def test_settings_survive_toml_and_json() -> None:
    config = ExperimentConfig(
        model=ModelConfig(proposal="uniform", bounds=((-4.0, 4.0), (0.0, 1e-7)), dropout=0.25),
        train=TrainConfig(stratified=False, learning_rate=3e-4, device="cpu"),
    )
    assert from_mapping(ExperimentConfig, tomllib.loads(to_toml(config))) == config
    assert from_mapping(ExperimentConfig, json.loads(json.dumps(to_mapping(config)))) == config


def test_an_integer_will_do_for_a_real_number() -> None:
    clip = from_mapping(TrainConfig, {"clip": 3}).clip
    assert clip == 3.0 and isinstance(clip, float)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.steps=100", {"train": {"steps": 100}}),
        ("train.learning_rate = 1e-4", {"train": {"learning_rate": 1e-4}}),
        ("train.stratified=false", {"train": {"stratified": False}}),
        ("task.name=checkerboard", {"task": {"name": "checkerboard"}}),
        ("task.image=a=b.png", {"task": {"image": "a=b.png"}}),
        ("model.bounds=[[0, 1], [2, 3]]", {"model": {"bounds": [[0, 1], [2, 3]]}}),
    ],
)
def test_assignments(text: str, expected: dict[str, Any]) -> None:
    assert parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["train.steps", "=3", " =3"])
def test_malformed_assignments_are_quoted(text: str) -> None:
    with pytest.raises(AemError, match=re.escape(f"'{text}' is not of the form section.key=value")):
        parse_assignment(text)


def test_later_settings_override_earlier_ones_key_by_key() -> None:
    base = {"train": {"steps": 10, "seed": 1}, "task": {"name": "spirals"}}
    merged = merge(merge(base, {"train": {"steps": 20}}), parse_assignment("train.clip=0"))
    assert merged == {"train": {"steps": 20, "seed": 1, "clip": 0}, "task": {"name": "spirals"}}
    assert base["train"] == {"steps": 10, "seed": 1}, "the base is left as it was"


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    broken, binary = tmp_path / "broken.toml", tmp_path / "binary.toml"
    broken.write_text("steps = = 3")
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (broken, binary):
        with pytest.raises(AemError, match=f"{path} is not valid TOML"):
            read_toml(path)
    with pytest.raises(
        AemError, match=r"cannot read the settings file .*missing.toml: No such file"
    ):
        read_toml(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("kind", "settings", "culprit"),
    [
        (ModelConfig, {"network": "Transformer"}, "'network' must be one of"),
        (ModelConfig, {"energy": "foo"}, "'energy' must be one of"),
        (ModelConfig, {"whiten": 1}, "'whiten' must be true or false"),
        (ModelConfig, {"hidden": 16.5}, "'hidden' must be a whole number"),
        (ModelConfig, {"hidden": "16"}, "'hidden' must be a whole number"),
        (TrainConfig, {"precision": "float16"}, "'precision' must be one of"),
        (TrainConfig, {"compiled": "no"}, "'compiled' must be true or false"),
        (TrainConfig, {"rise": 100, "steps": 100}, "cannot rise for 100 of 100 steps"),
    ],
)
def test_python_is_as_strict_as_a_settings_file(
    kind: type[Any], settings: dict[str, Any], culprit: str
) -> None:
    with pytest.raises(AemError, match=culprit):
        kind(**settings)


def test_numbers_of_numpy_are_numbers() -> None:
    numbers: dict[str, Any] = {"hidden": np.int64(16), "dropout": np.float32(0.5)}
    config = ModelConfig(**numbers)
    assert type(config.hidden) is int and type(config.dropout) is float


def test_a_setting_that_is_added_later_is_not_counted_among_the_unusual() -> None:
    @dataclass(frozen=True)
    class Before(Settings):
        width: int = setting(8, "Width.")

    @dataclass(frozen=True)
    class Since(Before):
        depth: int = setting(2, "Depth.", earlier=1)

    assert unusual(Before(width=9)) == {"width": 9}
    assert unusual(Since(width=9, depth=1)) == unusual(Before(width=9))
    assert unusual(Since()) == {"depth": 2}
