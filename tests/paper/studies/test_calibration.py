import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from aem.conditionals.normalizer import Quadrature, normalizer
from aem.config import ModelConfig
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.files import save_model
from aem.paper.cli.studies import calibration
from aem.paper.studies.calibration import CalibrationStudy, calibrate, choose_conditionals
from aem.paper.studies.trapezoid import trapezoid_log_z, window

SMALL = ModelConfig(
    features=3, hidden=16, blocks=1, gamma=8, energy_hidden=16, energy_blocks=1, components=3
)


def make(**changes: object) -> AEM:
    torch.manual_seed(0)
    model = AEM(ModelConfig(**{**SMALL.__dict__, **changes}))
    d = model.config.features
    model.embedding.frequencies.copy_(torch.linspace(1, 4, SMALL.frequencies).repeat(d, 1))
    with torch.no_grad():
        model.energy.final.weight.mul_(10)
    return model.eval()


@pytest.fixture(scope="module")
def model() -> AEM:
    return make()


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(100, 3))


def test_the_first_feature_is_left_out(model: AEM, rows: np.ndarray) -> None:
    """The marginal has one and the same γ whatever the row; the chosen ones differ."""
    chosen = choose_conditionals(model, rows, 50, seed=0)
    double = model.in_double()
    first = double.conditionals(torch.zeros(1, 3, dtype=torch.float64)).projected[0, 0]
    assert not (chosen.projected == first).all(-1).any()
    with pytest.raises(AemError, match="two or more"):
        choose_conditionals(make(features=1), rows[:, :1], 5, seed=0)
    with pytest.raises(AemError, match="held-out rows"):
        choose_conditionals(model, rows[:0], 5, seed=0)


def test_the_window_covers_the_proposal(model: AEM, rows: np.ndarray) -> None:
    chosen = choose_conditionals(model, rows, 20, seed=0)
    low, high = window(chosen)
    below = chosen.proposal.cdf(torch.stack((low, high), -1))
    assert below[:, 0].max() < 2e-16
    assert (1 - below[:, 1]).max() < 1e-15


@pytest.mark.parametrize("proposal", ["mixture", "uniform"])
def test_trapezoid_and_quadrature_agree_to_seven_figures(rows: np.ndarray, proposal: str) -> None:
    bounds = ((-3.0, 3.0),) * 3 if proposal == "uniform" else ()
    chosen = choose_conditionals(make(proposal=proposal, bounds=bounds), rows, 15, seed=0)
    truth = trapezoid_log_z(chosen)
    assert truth.converged.all()
    assert not truth.edge.any()
    with torch.no_grad():
        computed = normalizer(chosen, Quadrature(), tolerance=1e-9)
    assert (truth.log_z - computed.log_z).abs().max() < 1e-7


def test_trapezoid_of_a_known_integral(rows: np.ndarray) -> None:
    """A constant weight: log Z is that constant, to the accuracy of the window."""
    model = make()
    with torch.no_grad():
        model.energy.final.weight.zero_()
        model.energy.final.bias.fill_(2.0)
    chosen = choose_conditionals(model, rows, 10, seed=0)
    expected = chosen.log_weight(torch.zeros(10, 1, dtype=torch.float64))[:, 0].detach()
    truth = trapezoid_log_z(chosen)
    assert (truth.log_z - expected).abs().max() < 1e-9
    assert float(expected[0]) < -1


def test_a_literal_energy_without_tails_is_seen_at_the_edge(rows: np.ndarray) -> None:
    model = make(energy="literal")
    with torch.no_grad():
        model.energy.final.weight.zero_()
    assert trapezoid_log_z(choose_conditionals(model, rows, 5, seed=0)).edge.all()


def test_estimates_close_in_on_the_truth(model: AEM, rows: np.ndarray) -> None:
    study = CalibrationStudy(conditionals=120, samples=(5, 50, 5000))
    told: list[str] = []
    result = calibrate(model, rows, study, report=lambda what, done, total: told.append(what))
    assert result.conditionals == 120
    assert (result.divergent, result.unsettled, result.edges) == (0, 0, 0)
    assert result.quadrature.within_error == 1.0
    spread = {(s.kind, s.samples): s for s in result.spreads}
    assert set(spread) == {(k, s) for k in ("iid", "stratified") for s in study.samples}
    iid = [spread["iid", s].absolute["q50"] for s in study.samples]
    # From 50 to 5,000 samples an iid error shrinks tenfold.
    assert 5 < iid[1] / iid[2] < 20
    assert spread["stratified", 5000].absolute["q50"] < 0.2 * iid[2]
    # log Ẑ is too low on average, and the less the more samples.
    assert spread["iid", 5].difference["mean"] < spread["iid", 5000].difference["mean"] + 0.001
    relative, difference = (getattr(spread["iid", 5], n) for n in ("relative", "difference"))
    assert math.copysign(1, relative["q05"]) == math.copysign(1, difference["q05"])
    assert {"trapezoid rule", "quadrature", "iid samples", "stratified samples"} <= set(told)


def test_command_writes_numbers_and_figure(model: AEM, rows: np.ndarray, tmp_path: Path) -> None:
    path, data = tmp_path / "m.aem", tmp_path / "held.npy"
    save_model(model, path)
    np.save(data, rows)
    app = typer.Typer()
    app.command()(calibration)
    options = ["--conditionals", "4", "--data", str(data), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["--model", str(path), "--model", str(path), *options])
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "calibration.json").read_text())
    assert {"task", "command", "config", "seed", "device", "seconds"} <= record.keys()
    assert [m["task"] for m in record["models"]] == ["held", "held"]
    assert len(record["models"][0]["spreads"]) == 24
    picture = (tmp_path / "out" / "calibration.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    nameless = CliRunner().invoke(app, ["--model", str(path), "--out", str(tmp_path)])
    assert isinstance(nameless.exception, AemError)
    assert "--data" in str(nameless.exception)
