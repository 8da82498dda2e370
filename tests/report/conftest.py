"""A small table with everything that can go wrong in its names, and reports about it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aem.report import BuiltReport, Limits, build, render
from aem.tables.fit.automatic import fit_table
from aem.tables.fit.settings import FitSettings
from aem.tables.model import TableModel

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><script>alert(3)</script>",
    "{{script}} & a very long name that goes on, and on, and on, and never seems to find its end",
)
LIMITS = Limits(
    screened=300, scored=120, calibrated=60, counted=20, pictured=100, sampled=400, listed=8
)


def make_table(rows: int = 300) -> NDArray[np.float64]:
    """Two clusters, a heavy tail, counts; one row that fits nowhere."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, rows)
    first = 3.0 * group + 0.4 * rng.standard_normal(rows)
    columns = (
        first,
        np.exp(first + 0.3 * rng.standard_normal(rows)),
        rng.poisson(1 + 2 * group).astype(np.float64),
        first * 0.5 + rng.standard_normal(rows),
    )
    table = np.stack(columns, axis=1)
    table[17, 0] = 9.0
    return table


@pytest.fixture(scope="session")
def rows() -> NDArray[np.float64]:
    return make_table()


@pytest.fixture(scope="session")
def table(rows: NDArray[np.float64]) -> TableModel:
    """Fitted with a few steps, so that there is a history to show."""
    settings = FitSettings(components=2, hidden=16, steps=20, frequencies=2)
    return fit_table(rows, HOSTILE, settings=settings, device="cpu").table


@pytest.fixture(scope="session")
def made(table: TableModel, rows: NDArray[np.float64]) -> BuiltReport:
    return build(
        table, rows, path=Path("a<b>.aem"), data="rows & <i>columns</i>.csv", limits=LIMITS
    )


@pytest.fixture(scope="session")
def page_file(made: BuiltReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(made.record), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium that is installed already; none is ever downloaded."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"no browser found: none of {', '.join(names)} is on the path")
    # Chromium refuses its sandbox to the superuser, as whom containers often run.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=found, args=arguments)
        yield opened
        opened.close()
