"""What an automatic fit keeps of its networks, and that it says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aem import AEMDensity
from aem.cli.fit import sentences
from aem.errors import AemError, Interrupted
from aem.model.aem import AEM
from aem.tables.fit import networks
from aem.tables.fit.automatic import FitInterrupted, fit_table
from aem.tables.fit.settings import FitSettings
from aem.tables.model import TableModel
from aem.training import fit
from aem.training.checkpoint import TrainingState

SETTINGS = FitSettings(components=4, hidden=32, steps=60, frequencies=2, batch_size=64)
COLUMNS = ["a", "b"]


def ring(count: int, seed: int = 0) -> np.ndarray:
    """A ring with an edge, of which a mixture of Gaussians knows little."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, count), rng.uniform(0.9, 1.0, count)
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1)


def fitted(**settings: Any) -> TableModel:
    given = FitSettings(**{**SETTINGS.__dict__, **settings})
    return fit_table(ring(1200), COLUMNS, settings=given, device="cpu").table


def test_the_record_says_what_was_tried_and_what_won() -> None:
    network = fitted(steps=200).about["network"]
    assert [entry["what"] for entry in network["tried"]] == [
        "mixture",
        "short training from the mixture",
        "short training from the gaussian",
        f"density from the {network['start']}",
    ]
    race = {
        entry["what"]: max(entry["score"], entry["proposal"]) for entry in network["tried"][1:3]
    }
    assert max(race, key=lambda name: race[name]) == f"short training from the {network['start']}"
    assert network["won"] == "energies" and network["kept"]
    gain = network["validation_log_prob"] - network["proposal_validation_log_prob"]
    assert gain > networks.WORTH
    said = sentences(fitted(steps=200), Path("m.aem"), 1.0)
    assert any("of that is the energies'" in sentence for sentence in said)


def test_energies_that_add_nothing_are_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "WORTH", 100.0)
    table = fitted()
    assert table.about["network"]["won"] == "proposal"
    scores = table.score(ring(50, 1))
    assert table.model.flat and not scores.error.any(), "nothing is integrated"
    exact = table.exact().scores(torch.from_numpy(ring(50, 1)))
    np.testing.assert_allclose(scores.log_density, exact.log_proposal.numpy(), atol=1e-6)
    assert any("added too little" in sentence for sentence in sentences(table, Path("m"), 1.0))


def test_without_a_gain_the_mixture_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(model: AEM, *args: Any, **kw: Any) -> TrainingState:
        for parameter in model.arnn.parameters():
            parameter.data.add_(0.3)
        return TrainingState()

    alone = fit_table(
        ring(1200), COLUMNS, settings=FitSettings(components=4, steps=0), device="cpu"
    )
    monkeypatch.setattr(networks, "fit", spoil)
    table = fitted()
    assert table.about["network"]["won"] == "mixture" and not table.about["network"]["kept"]
    assert alone.table.about["network"] is None
    assert table.model.flat
    one, other = (t.score(ring(500, 1)).total for t in (table, alone.table))
    assert one.mean() == pytest.approx(other.mean(), abs=0.1), "fitted to all rows but one in ten"


def test_a_training_that_explodes_is_recorded_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(model: AEM, *args: Any, **kw: Any) -> TrainingState:
        for parameter in model.parameters():
            parameter.data.fill_(float("nan"))
        raise AemError("the loss became nan at step 3")

    monkeypatch.setattr(networks, "fit", explode)
    table = fitted()
    assert table.about["network"]["won"] == "mixture"
    assert all(
        "loss became nan" in entry["failed"] for entry in table.about["network"]["tried"][1:]
    )
    assert np.isfinite(table.score(ring(9, 1)).total).all()


def stopping(after: int) -> Callable[..., TrainingState]:
    """A training that is interrupted when it has been called so often."""
    calls = 0

    def train(*args: Any, **kw: Any) -> TrainingState:
        nonlocal calls
        calls += 1
        if calls > after:
            history = [{"step": 7, "loss": 1.0}]
            raise Interrupted("interrupted at step 7", TrainingState(step=7, history=history))
        return fit(*args, **kw)

    return train


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interruption_keeps_the_best_so_far(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "fit", stopping(after))
    with pytest.raises(FitInterrupted, match="the best so far") as stopped:
        fitted()
    table = stopped.value.fitted.table
    network = table.about["network"]
    assert network["interrupted"] and network["tried"][-1]["steps"] == 7
    best = max(max(entry["score"], entry.get("proposal", -np.inf)) for entry in network["tried"])
    assert network["validation_log_prob"] > best - networks.WORTH, "short trainings count as well"
    assert network["history"]
    assert np.isfinite(table.score(ring(9, 1)).total).all()
    monkeypatch.setattr(networks, "fit", stopping(after))
    density = AEMDensity(**SETTINGS.__dict__, device="cpu")
    with pytest.raises(KeyboardInterrupt, match="interrupted"):
        density.fit(ring(1200))
    np.testing.assert_array_equal(density.score_samples(ring(9, 1)), table.score(ring(9, 1)).total)
