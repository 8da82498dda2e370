import json
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy import integrate, stats
from typer.testing import CliRunner

from aem.errors import AemError
from aem.paper.cli.studies import dimensionality
from aem.paper.studies.dimensionality import DimensionalityStudy, study, weight_variance


def test_the_variance_formula_is_the_integral() -> None:
    target, proposal = stats.norm(0, 1), stats.norm(0, 1.25)
    second, _ = integrate.quad(lambda y: target.pdf(y) ** 2 / proposal.pdf(y), -30, 30)
    assert weight_variance(1) == pytest.approx(second - 1, rel=1e-8)
    assert weight_variance(3) == pytest.approx(second**3 - 1, rel=1e-8)
    assert weight_variance(1, 0.5) == np.inf


def test_weights_drawn_by_length_have_the_right_moments() -> None:
    """One sample a trial: exp(log Ẑ) is a weight, of mean one and known variance."""
    (result,) = study(DimensionalityStudy(dimensions=(3,), samples=1, trials=400_000))
    weights = np.exp(result.log_z)
    assert weights.mean() == pytest.approx(1, abs=0.005)
    assert weights.var() == pytest.approx(result.weight_variance, rel=0.05)


def test_estimates_deteriorate_with_dimension() -> None:
    results = study(DimensionalityStudy(trials=500))
    spread = [np.ptp(np.quantile(r.log_z, [0.05, 0.95])) for r in results]
    assert np.all(np.diff(spread) > 0)
    assert abs(np.median(results[0].log_z)) < 0.02
    assert np.median(results[-1].log_z) < -3


def test_bad_settings() -> None:
    with pytest.raises(AemError, match="positive"):
        DimensionalityStudy(samples=0)


def test_command_writes_numbers_and_figure(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(dimensionality)
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "new" / "dimensionality.json").read_text())
    assert record["config"]["samples"] == 20
    assert all(len(r["trials"]) == 50 for r in record["results"])
    assert (tmp_path / "new" / "dimensionality.png").read_bytes().startswith(b"\x89PNG")
