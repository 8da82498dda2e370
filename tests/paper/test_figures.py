"""Figures from files under results/: what is there is drawn, what is not is named."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aem.cli import main
from aem.data.tasks import plane_task
from aem.errors import AemError
from aem.paper.figures import draw_all
from aem.paper.gallery import ROWS
from aem.paper.plane.density import PlaneDensity
from aem.paper.plane.picture import DRAWN, Picture, captions


def made_up_picture() -> Picture:
    task = plane_task("image")
    centres = (np.arange(16) + 0.5) / 16
    low, high = (np.array(b) for b in zip(*task.bounds, strict=True))
    x, y = (low[i] + (high - low)[i] * centres for i in range(2))
    flat = np.zeros((16, 16))
    rows = task.sample(500, 0)
    return Picture.of(task, PlaneDensity(x, y, flat, flat - 1), dict.fromkeys(DRAWN, rows))


def record(**changes: Any) -> dict[str, Any]:
    task = {"train_rows": 1_000_000}
    found = {"config": {"task": task}, "limit": 0.2831, "gap": 0.01234, "proposal_gap": 0.5}
    return {**found, **changes}


def test_a_picture_survives_its_file(tmp_path: Path) -> None:
    picture = made_up_picture()
    picture.save(tmp_path / "density.npz")
    again = Picture.load(tmp_path / "density.npz")
    np.testing.assert_allclose(again.truth, picture.truth, atol=5e-2)
    np.testing.assert_array_equal(again.proposal, picture.proposal)
    for name in DRAWN:
        np.testing.assert_allclose(again.histograms[name], picture.histograms[name], rtol=1e-3)
    np.testing.assert_allclose(again.bounds, plane_task("image").bounds)


def test_a_picture_may_be_from_before_histograms(tmp_path: Path) -> None:
    picture = replace(made_up_picture(), histograms={})
    picture.save(tmp_path / "density.npz")
    assert not Picture.load(tmp_path / "density.npz").histograms


def test_captions_say_what_the_record_does() -> None:
    """Points trained on, the best possible, both gaps, and rows that have no density."""
    assert captions(record()) == (
        "1,000,000 points; best possible: 0.283 nats",
        "0.5000 nats below it",
        "",
        "0.0123 nats below it",
        "",
    )
    some = record(rows_without_density=3, quadrature={"rows": 2000})
    assert captions(some)[3] == "0.0123 nats below it, but for 3 of 2,000 test rows"
    none = record(gap=None, rows_without_density=2000, quadrature={"rows": 2000})
    assert captions(none)[3] == "no density at 2,000 of 2,000 test rows"


def test_a_histogram_is_a_density() -> None:
    """Of the window's area, in the orientation of the grids."""
    picture = made_up_picture()
    (low, high), (bottom, top) = picture.bounds
    histogram = picture.histograms["data"]
    assert histogram.mean() * (high - low) * (top - bottom) == pytest.approx(1.0)
    rows = plane_task("image").sample(500, 0)
    right = float((rows[:, 0] > 0.5).mean())
    assert histogram[:, 128:].sum() / histogram.sum() == pytest.approx(right)


def test_a_slice_is_a_density() -> None:
    picture = made_up_picture()
    low, high = picture.bounds[1]
    assert picture.slice("truth", 0.5).mean() * (high - low) == pytest.approx(1.0)


def test_foreign_picture_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "density.npz", x=np.zeros(3))
    with pytest.raises(AemError, match=r"density\.npz"):
        Picture.load(tmp_path / "density.npz")


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    (results / "image").mkdir(parents=True)
    for task in ROWS:
        (results / task).mkdir(exist_ok=True)
        made_up_picture().save(results / task / "paper.npz")
        (results / task / "paper.json").write_text(json.dumps(record()))
    monkeypatch.setattr(sys, "argv", ["aem", "reproduce", "figures", "--results", str(results)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    for name in ("figure1", "figure4a", "figure4b", "table1"):
        assert (results / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "figure2: no data, as dimensionality/dimensionality.json is missing" in printed
    assert "figure5: no data, as calibration/einstein.json" in printed
    assert not (results / "figures" / "figure5.png").exists()


def test_damaged_sources_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dimensionality").mkdir()
    for content in ("{", "[1, 2]", "{}"):
        (tmp_path / "dimensionality" / "dimensionality.json").write_text(content)
        with pytest.raises(AemError, match=r"dimensionality\.json"):
            draw_all(tmp_path, tmp_path / "figures")
    with pytest.raises(AemError, match="nowhere"):
        draw_all(tmp_path / "nowhere", tmp_path / "figures")
