"""The command line as tests call it."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aem.cli import main

COLUMNS = ["alcohol", "magnesium", "hue"]


GOOD = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=COLUMNS).round(3)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["aem", *arguments])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def refused(
    arguments: list[str],
    culprit: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(Path().iterdir())
    assert run(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert len(captured.err.strip().splitlines()) == 1, captured.err
    assert captured.err.startswith("aem: ")
    assert culprit in captured.err
    assert sorted(Path().iterdir()) == before, "nothing half-written"


def read(name: str) -> pd.DataFrame:
    if name.endswith(".parquet"):
        return pd.read_parquet(name)
    if name.endswith(".json"):
        return pd.DataFrame(json.loads(Path(name).read_text()))
    return read_text(name, "\t" if name.endswith(".tsv") else ",")


def read_text(source: str | io.BytesIO, separator: str = ",") -> pd.DataFrame:
    """Every digit counts: the usual engine of pandas before 3.1 reads the last one wrong."""
    return pd.read_csv(source, sep=separator, engine="pyarrow")


def text_of(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False))
