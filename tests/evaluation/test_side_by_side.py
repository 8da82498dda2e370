import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from aem.cli.evaluate import as_record, evaluate, sentences
from aem.conditionals.normalizer import Quadrature
from aem.config import ModelConfig
from aem.errors import AemError
from aem.evaluation.side_by_side import evaluate as score
from aem.evaluation.side_by_side import settle, summarise
from aem.model.aem import AEM
from aem.model.files import save_model
from aem.tables.model import TableModel
from aem.tables.scores import TableScores

SMALL = ModelConfig(
    features=2, hidden=16, blocks=1, gamma=8, energy_hidden=16, energy_blocks=1, components=3
)


@pytest.fixture(scope="module")
def model() -> AEM:
    torch.manual_seed(0)
    model = AEM(SMALL, columns=("a", "b"))
    model.embedding.frequencies.copy_(torch.linspace(1, 4, SMALL.frequencies).repeat(2, 1))
    with torch.no_grad():
        model.energy.final.weight.mul_(10)
    return model.eval()


@pytest.fixture(scope="module")
def density(model: AEM) -> TableScores:
    return TableScores.of(TableModel(model))


@pytest.fixture(scope="module")
def rows(model: AEM) -> np.ndarray:
    torch.manual_seed(1)
    drawn: np.ndarray = model().sample((200,)).double().numpy()
    return drawn


def test_summary() -> None:
    s = summarise(torch.tensor([-1.0, -4.0, -1.0, -2.0]), np.array([10, 11, 12, 13]))
    assert (s.mean, s.median, s.worst, s.worst_row, s.impossible) == (-2.0, -1.5, -4.0, 11, 0)
    assert math.isclose(s.two_se, 2 * math.sqrt(2.0) / 2)
    zero = summarise(torch.tensor([-1.0, -torch.inf]))
    assert (zero.mean, zero.worst_row, zero.impossible) == (-math.inf, 1, 1)
    assert math.isnan(summarise(torch.tensor([-1.0])).two_se)


def test_the_quadrature_is_put_to_the_test(
    model: AEM, density: TableScores, rows: np.ndarray
) -> None:
    x = torch.from_numpy(rows[:20])
    settled = settle(density, x)
    assert settled.held_still
    assert settled.moved <= 0.1 * settled.claimed
    assert settled.nodes[1] >= 2 * settled.nodes[0]
    assert settled.rows_beyond_error == 0
    assert len(settled.unmet) == 0
    fine = model().scores(x, Quadrature(tolerance=1e-6)).log_prob.sum(-1)
    assert (settled.log_prob - fine).abs().max() <= settled.error.max() + 1e-6


def test_a_tolerance_out_of_reach_is_told(density: TableScores, rows: np.ndarray) -> None:
    settings = Quadrature(tolerance=1e-14, first_panels=1, max_nodes=60)
    settled = settle(density, torch.from_numpy(rows[:5]), settings)
    assert set(settled.unmet) <= set(range(5))
    assert len(settled.unmet) > 0


def test_rows_keep_the_numbers_they_are_known_by(
    model: AEM, density: TableScores, rows: np.ndarray
) -> None:
    chosen = np.arange(30, 90, 3)
    some = score(density, rows[chosen], labels=chosen, samples=0, kde_samples=0).quadrature
    each = model().log_prob(torch.from_numpy(rows))
    assert some.worst_row in chosen
    assert float(each[some.worst_row]) == pytest.approx(some.worst, abs=1e-3)


def test_all_scores_side_by_side(density: TableScores, rows: np.ndarray) -> None:
    validation = rows[:100]
    result = score(density, rows[100:], validation=validation, samples=2000, kde_samples=500)
    assert result.importance is not None
    assert result.kde is not None
    assert result.importance_noise is not None
    off = abs(result.importance.mean - result.quadrature.mean)
    assert off < 2 * result.importance_noise < 0.02  # four standard errors
    assert result.quadrature.mean > result.proposal.mean  # rows of the model itself
    assert result.quadrature.mean - 0.1 < result.kde.mean < result.quadrature.mean + 0.05
    assert result.set_aside == 0
    assert result.kde_fit_rows == 100
    assert result.error < 1e-3


def test_without_validation_a_tenth_is_set_aside_and_not_scored(
    model: AEM, density: TableScores, rows: np.ndarray
) -> None:
    result = score(density, rows[:50], samples=0, kde_samples=50)
    assert (result.set_aside, result.kde_fit_rows, result.quadrature.rows) == (5, 5, 45)
    assert result.importance is None
    assert "5 rows set aside from the data" in " ".join(sentences(result))
    everything = score(density, rows[:50], samples=0, kde_samples=0)
    assert everything.quadrature.rows == 50
    # Row numbers are those of the user's table, whoever was set aside.
    own = model().scores(torch.from_numpy(rows[:50])).log_prob.sum(-1)
    worst = result.quadrature.worst_row
    assert abs(float(own[worst]) - result.quadrature.worst) < 2e-3


def test_the_gap_to_a_known_truth_is_paired(
    model: AEM, density: TableScores, rows: np.ndarray
) -> None:
    truth = model().scores(torch.from_numpy(rows[:20])).log_prob.sum(-1).numpy() + 0.25
    result = score(density, rows[:20], truth=truth, samples=0, kde_samples=0)
    assert result.gap is not None
    assert abs(result.gap.mean - 0.25) < 1e-3
    assert result.gap.two_se < 1e-3  # although the scores themselves scatter by far more


def test_a_record_is_plain_json(density: TableScores, rows: np.ndarray) -> None:
    result = score(density, rows[:1], samples=10, kde_samples=0)
    record = json.loads(json.dumps(as_record(result), allow_nan=False))
    assert record["test_log_prob_2se"] is None
    assert record["rows"] == 1


def test_rows_outside_a_uniform_proposal_are_counted() -> None:
    config = ModelConfig(**{**SMALL.__dict__, "proposal": "uniform", "bounds": ((-1, 1), (-1, 1))})
    density = TableScores.of(TableModel(AEM(config).eval()))
    result = score(density, [[0.0, 0.0], [5.0, 0.0]], samples=5, kde_samples=0)
    assert result.quadrature.impossible == 1
    assert result.quadrature.mean == -math.inf
    record = json.loads(json.dumps(as_record(result), allow_nan=False))
    assert record["test_log_prob"] is None
    assert record["summaries"]["quadrature"]["impossible"] == 1
    assert any("1 rows have density zero" in line for line in sentences(result))


def test_bad_input(density: TableScores, rows: np.ndarray) -> None:
    with pytest.raises(AemError, match="too few"):
        score(density, rows[:5])
    with pytest.raises(AemError, match="no rows"):
        score(density, rows[:0])
    with pytest.raises(AemError, match="columns"):
        score(density, np.zeros((20, 3)))
    with pytest.raises(AemError, match="negative"):
        score(density, rows, samples=-1)


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(evaluate)
    return app


def test_command_prints_and_writes(
    app: typer.Typer, model: AEM, rows: np.ndarray, tmp_path: Path
) -> None:
    path, data, out = tmp_path / "m.aem", tmp_path / "d.csv", tmp_path / "r.json"
    save_model(model, path)
    lines = ["id,b,a", *(f"r{i},{b},{a}" for i, (a, b) in enumerate(rows[:30]))]
    data.write_text("\n".join(lines) + "\n")
    options = ["--drop", "id", "--samples", "50", "--kde-samples", "20"]
    result = CliRunner().invoke(app, [str(path), str(data), *options, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "has converged" in result.stdout
    assert "set aside" in result.stdout
    record = json.loads(out.read_text())
    own = summarise(model().scores(torch.from_numpy(rows[:30])).log_prob.sum(-1))
    assert abs(record["test_log_prob"] - own.mean) < 0.5
    assert {"task", "command", "config", "seed", "device", "seconds"} <= record.keys()


def test_command_knows_tasks_and_their_limit(app: typer.Typer, model: AEM, tmp_path: Path) -> None:
    path = tmp_path / "m.aem"
    save_model(model, path)
    options = ["--rows", "20", "--samples", "0", "--kde-samples", "0", "--json"]
    result = CliRunner().invoke(app, [str(path), "checkerboard", *options])
    record = json.loads(result.stdout)
    assert record["limit"] == pytest.approx(-math.log(32))
    assert record["gap"] == pytest.approx(record["limit"] - record["test_log_prob"])


@pytest.mark.parametrize(
    ("data", "said"),
    [("nowhere.csv", "there is no file"), ("nothing", "neither a file nor one of the names")],
)
def test_command_refuses(
    app: typer.Typer, model: AEM, tmp_path: Path, data: str, said: str
) -> None:
    path = tmp_path / "m.aem"
    save_model(model, path)
    result = CliRunner().invoke(app, [str(path), data])
    assert isinstance(result.exception, AemError)
    assert said in str(result.exception)
