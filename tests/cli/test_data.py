import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aem.cli.data import app
from aem.data import registry
from aem.errors import AemError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AEM_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_table_names_every_data_set(root: Path) -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    for info in registry.datasets():
        assert info.name in result.stdout
        assert info.licence.split(",")[0] in result.stdout
    assert "aem data fetch hepmass" in result.stdout


def test_json_tells_what_is_present(root: Path) -> None:
    (root / "miniboone").mkdir()
    np.save(root / "miniboone" / "data.npy", np.zeros((2, 43)))
    result = CliRunner().invoke(app, ["--json"])
    present = {entry["name"] for entry in json.loads(result.stdout) if entry["present"]}
    assert present == {"miniboone"}


def test_fetch_prints_the_files(root: Path) -> None:
    (root / "data" / "miniboone").mkdir(parents=True)
    path = root / "data" / "miniboone" / "data.npy"
    np.save(path, np.zeros((2, 43)))
    result = CliRunner().invoke(app, ["fetch", "miniboone"])
    assert result.stdout.replace("\n", "") == str(path)


def test_unknown_name_is_an_error(root: Path) -> None:
    result = CliRunner().invoke(app, ["fetch", "nothing"])
    assert isinstance(result.exception, AemError)
