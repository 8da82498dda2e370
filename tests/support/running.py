"""The command line as tests call it."""

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
    separator = "\t" if name.endswith(".tsv") else ","
    return pd.read_csv(name, sep=separator, float_precision="round_trip")


def text_of(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False))
