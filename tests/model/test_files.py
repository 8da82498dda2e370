import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from aem import AEM, AemError, ModelConfig, TableModel
from aem.base.files import FORMAT_VERSION, write_json, write_tensors
from aem.model.files import load_model, model_information, save_model

SMALL: dict[str, Any] = {
    "hidden": 16,
    "blocks": 1,
    "gamma": 4,
    "energy_hidden": 16,
    "energy_blocks": 1,
    "components": 3,
    "frequencies": 2,
}
FORMS: dict[str, dict[str, Any]] = {
    "relative": {},
    "literal": {"energy": "literal"},
    "uniform": {"proposal": "uniform", "bounds": ((-9.0, 9.0), (0.0, 80.0))},
    "no frequencies": {"frequencies": 0},
}


@pytest.fixture
def make(randomise: Callable[[nn.Module], None]) -> Callable[..., AEM]:
    def build(form: str = "relative", context: int = 0) -> AEM:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(200, 2)) * [1, 7] + [0, 40]
        c = rng.normal(3, 2, size=(200, context)) if context else None
        aem = AEM.for_data(
            ModelConfig(**{**SMALL, **FORMS[form]}), x, c, columns=("width", "größe")
        )
        randomise(aem.energy)
        return aem.eval()

    return build


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("double", [False, True])
def test_a_loaded_model_is_the_saved_one_bit_for_bit(
    make: Callable[..., AEM], tmp_path: Path, form: str, context: int, double: bool
) -> None:
    aem = make(form, context)
    if double:
        aem = aem.double()
    path = tmp_path / "new folder" / "model.aem"
    save_model(aem, path, seed=3)
    loaded = load_model(path)
    assert loaded.config == aem.config and loaded.columns == aem.columns
    assert not loaded.training
    saved = aem.state_dict()
    assert saved.keys() == loaded.state_dict().keys()
    for name, tensor in loaded.state_dict().items():
        assert tensor.dtype == saved[name].dtype and torch.equal(tensor, saved[name]), name
    x = torch.tensor([[0.1, 38.0], [1.0, 50.0]])
    c = torch.tensor([[3.0, 1.0], [2.0, 7.0]]) if context else None
    if form != "literal":  # whose normaliser need not exist
        assert torch.equal(loaded(c).log_prob(x), aem(c).log_prob(x))
    estimates = []
    for model in (aem, loaded):
        torch.manual_seed(1)
        estimates.append(model.train()(c).log_prob(x.to(aem.dtype)))
    assert torch.equal(*estimates)
    assert model_information(path)["about"] == {"seed": 3}


def test_saving_leaves_one_readable_file(make: Callable[..., AEM], tmp_path: Path) -> None:
    path = tmp_path / "model.aem"
    path.write_text("what was there before")
    save_model(make(), path)
    assert os.listdir(tmp_path) == ["model.aem"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    load_model(path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_truncated_files_are_refused(
    make: Callable[..., AEM], tmp_path: Path, share: float
) -> None:
    path = tmp_path / "model.aem"
    save_model(make(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(AemError, match=f"{path} is not a model file, or a damaged one"):
        load_model(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.aem"
    path.write_bytes(np.random.default_rng(0).bytes(4096))
    with pytest.raises(AemError, match=f"{path} is not a model file"):
        load_model(path)
    for metadata in (None, {"format": "pt"}, {"format": '"gguf"'}, {"kind": '"model"'}):
        save_file({"weight": torch.zeros(3)}, path, metadata=metadata)
        with pytest.raises(AemError, match=f"{path} is not an? (aem )?model file"):
            load_model(path)


def rewritten(
    path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]
) -> None:
    """Save the file again after a change to its metadata or tensors."""
    from aem.base.files import read_tensors

    tensors, metadata = read_tensors(path, "model")
    change(metadata, tensors)
    write_tensors(path, tensors, metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m, t: m.update(format_version=FORMAT_VERSION + 1),
            f"format version {FORMAT_VERSION + 1}; this aem reads up to {FORMAT_VERSION}: update",
        ),
        (lambda m, t: m.update(kind="checkpoint"), "is not an aem model file"),
        (lambda m, t: m.pop("model"), "not hold a complete model: 'model' is missing"),
        (lambda m, t: m.pop("columns"), "not hold a complete model: 'columns' is missing"),
        (lambda m, t: m.pop("transforms"), "not hold a complete model: 'transforms' is missing"),
        (lambda m, t: m.update(model=[]), "'model' is not a table of keys$"),
        (lambda m, t: m["model"].pop("config"), "not hold a complete model: 'config' is missing"),
        (lambda m, t: t.pop("energy.final.bias"), "not hold a complete model: .*energy.final.bias"),
        (
            lambda m, t: t.update({"standardisation.shift": torch.zeros(5)}),
            "not hold a complete model: .*standardisation.shift",
        ),
        (lambda m, t: t.clear(), "not hold a complete model: 'standardisation.shift' is missing"),
        (
            lambda m, t: m["model"]["config"].update(hiden=3),
            "model.aem .* unknown key 'hiden'; .* may be from a newer version of aem$",
        ),
        (
            lambda m, t: m["model"]["config"].update(energy="new"),
            "'new'; .* a newer version of aem$",
        ),
        (
            lambda m, t: m["model"]["config"].update(proposal="hyperbolic"),
            "'hyperbolic' is not in aem.config.PROPOSALS: .* a newer version of aem$",
        ),
        (
            lambda m, t: m["model"]["config"].update(energy_input="residual"),
            "'energy_input' is no longer a setting: only 'value' is left of it, not 'residual'$",
        ),
        (lambda m, t: m["model"].update(config=[1]), "'config' is not a table of keys$"),
        (lambda m, t: m["columns"].pop(), "model.aem .* 1 column names for 2 features"),
        (lambda m, t: m.update(columns=[1, 2]), "'columns' is not a list of columns"),
        (lambda m, t: m.update(columns=["width", "size"]), "'columns' is not a list of columns"),
        (lambda m, t: m["columns"][0].pop("kind"), "'columns' is not a list of columns"),
        (lambda m, t: m["columns"][0].update(name="größe"), "more than one column 'größe'$"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    make: Callable[..., AEM],
    tmp_path: Path,
    change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None],
    message: str,
) -> None:
    path = tmp_path / "model.aem"
    save_model(make(), path)
    rewritten(path, change)
    for load in (load_model, TableModel.load):
        with pytest.raises(AemError, match=f"(?s){message}"):
            load(path)


def test_metadata_nested_beyond_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.aem"
    save_file({"weight": torch.zeros(3)}, path, metadata={"about": "[" * 100_000})
    with pytest.raises(AemError, match="not a model file, or a damaged one"):
        load_model(path)


@pytest.mark.parametrize("what", ["stat", "open"])
def test_a_file_that_may_not_be_read_is_named(
    make: Callable[..., AEM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = tmp_path / "model.aem"
    save_model(make(), path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, what, refuse)
    with pytest.raises(AemError, match=f"cannot read {path}: Permission denied"):
        load_model(path)


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(AemError, match=r"cannot read .*: File name too long"):
        load_model(tmp_path / ("x" * 300))
    with pytest.raises(AemError, match="there is no model file at"):
        load_model("a\0b")


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.aem", tmp_path):
        with pytest.raises(AemError, match=f"there is no model file at {path}"):
            load_model(path)


def test_a_folder_that_cannot_be_written_is_named(make: Callable[..., AEM], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        target = folder / "model.aem"
        with pytest.raises(AemError, match=f"cannot write to {folder}: a file is in the way"):
            save_model(make(), target)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    make: Callable[..., AEM],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    path = tmp_path / "model.aem"
    save_model(make(), path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    expected = AemError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        save_model(make(), path, other=True)
    assert os.listdir(tmp_path) == ["model.aem"]
    assert path.read_bytes() == before


def test_json_has_no_numbers_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "metrics.json", {"gap": float("nan")})
    assert not os.listdir(tmp_path)
    write_json(tmp_path / "metrics.json", {"gap": 0.5})
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"gap": 0.5}
