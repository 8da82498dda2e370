"""A table and its model, in a folder of their own."""

from pathlib import Path

import pandas as pd
import pytest
from sklearn.datasets import load_wine

from aem import AEMDensity
from tests.support.running import COLUMNS


@pytest.fixture(scope="module")
def wine() -> pd.DataFrame:
    frame: pd.DataFrame = load_wine(as_frame=True).data
    return frame[COLUMNS]


@pytest.fixture(scope="module")
def fitted(wine: pd.DataFrame) -> AEMDensity:
    return AEMDensity(components=2).fit(wine)


@pytest.fixture
def folder(
    tmp_path: Path, wine: pd.DataFrame, fitted: AEMDensity, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with a table and its model, which is the working directory."""
    wine.to_csv(tmp_path / "wine.csv", index=False)
    fitted.save(tmp_path / "wine.aem")
    monkeypatch.chdir(tmp_path)
    return tmp_path
