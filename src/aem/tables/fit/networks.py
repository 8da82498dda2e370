"""The networks of an automatic fit: trained from the best start, kept where validation rows gain.

Proposal and energies are trained together from the first step: energies that are trained after the
proposal find little left to gain. Where there are several starts, a short training of each chooses one.

What validation rows do not gain from is not kept. Without a gain from the energies the model is its
proposal, which scores a hundred times as fast; without a gain from the networks it is the mixture.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aem.base.devices import choose_device
from aem.base.settings import to_mapping
from aem.config import TrainConfig
from aem.errors import AemError, Interrupted
from aem.model.aem import AEM
from aem.tables.fit.plan import FitPlan
from aem.training.checkpoint import TrainingState
from aem.training.loop import fit, validation_scores

Array = NDArray[np.float64]

JUDGED = 20_000  # validation rows × columns that judge energies: each takes a hundred nodes
WORTH = 0.01  # nats per row that energies must add to be kept


@dataclass(frozen=True)
class Judge:
    """Scores models by validation rows, in the units of the table.

    Parameters
    ----------
    rows
        validation rows, as the models read them.
    log_volume
        what the log densities of the table's rows are more, on average.
    """

    rows: Array
    log_volume: float

    def __call__(self, model: AEM) -> tuple[float, float]:
        """Return the mean log density of the rows under a model, and under its proposal."""
        z = model.standardise(torch.from_numpy(self.rows))
        log_p, log_q = validation_scores(model.eval(), z, None)
        return log_p + self.log_volume, log_q + self.log_volume


@dataclass(frozen=True)
class Trained:
    """A trained model with its scores on validation rows.

    Parameters
    ----------
    model
        the model.
    log_p, log_q
        mean log density of validation rows under the model, and under its proposal.
    progress
        how the training went.
    """

    model: AEM
    log_p: float
    log_q: float
    progress: TrainingState

    @property
    def score(self) -> float:
        """The better of both: what the energies do not improve, the proposal keeps."""
        return max(self.log_p, self.log_q)


@dataclass
class Trainings:
    """Trainings of one fit: what each was, and what it gave."""

    train: Array
    judge: Judge
    quiet: bool
    tried: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False

    def run(self, model: AEM, config: TrainConfig, what: str, stage: str) -> "Trained":
        """Train a model in place and score it; one whose numbers explode is left as it was.

        Parameters
        ----------
        model
            the model.
        config
            how to train it.
        what
            what this is called in the record.
        stage
            what it is called in the progress.
        """
        before, progress = copy.deepcopy(model.state_dict()), TrainingState()
        entry: dict[str, Any] = {"what": what}
        try:
            progress = fit(
                model, self.train, self.judge.rows, config,
                log_volume=self.judge.log_volume, quiet=self.quiet, stage=stage,
            )  # fmt: skip
        except Interrupted as stopped:
            self.interrupted = entry["interrupted"] = True
            progress = stopped.state or progress
        except AemError as error:
            model.load_state_dict(before)
            entry["failed"] = str(error)
        log_p, log_q = self.judge(model)
        self.tried.append({
            **entry, "score": log_p, "proposal": log_q, "steps": progress.step,
            "best_step": progress.best_step, "seconds": round(progress.seconds, 2),
        })  # fmt: skip
        return Trained(model, log_p, log_q, progress)


def train_networks(
    mixture: AEM,
    starts: Mapping[str, AEM],
    train: Array,
    judge: Judge,
    plan: FitPlan,
    *,
    quiet: bool = True,
) -> tuple[AEM, dict[str, Any]]:
    """Train the networks of the best start, and keep what validation rows gain from.

    Parameters
    ----------
    mixture
        the model that is the mixture alone.
    starts
        what training may start from, by name; one of them may be `mixture`.
    train
        training rows, as the models read them.
    judge
        scores models by validation rows.
    plan
        how to train.
    quiet
        whether to show no progress.

    Returns
    -------
    model : AEM
        what is kept.
    record : dict
        what was tried, each score, and what won.
    """
    device = choose_device(plan.training.device)
    for model in (mixture, *starts.values()):
        model.to(device)
    judge = Judge(judge.rows[: max(JUDGED // judge.rows.shape[1], 1)], judge.log_volume)
    alone, _ = judge(mixture)
    trainings = Trainings(train, judge, quiet, [{"what": "mixture", "score": alone}])
    mixture = copy.deepcopy(mixture)  # which may be one of the starts

    finished: dict[str, Trained] = {}
    if len(starts) > 1:
        for place, (name, model) in enumerate(starts.items(), 1):
            what, stage = f"short training from the {name}", f"start {place} of {len(starts)}"
            finished[name] = trainings.run(copy.deepcopy(model), plan.race, what, stage)
            if trainings.interrupted:
                break
    start = max(finished, key=lambda name: finished[name].score, default=next(iter(starts)))
    best = finished.get(start)
    if not trainings.interrupted:
        what = f"density from the {start}"
        whole = trainings.run(starts[start], plan.training, what, "training")
        if best is None or whole.score >= best.score:
            best = whole
    assert best is not None

    won = "energies"
    if best.log_p - max(best.log_q, alone) < WORTH:
        won = "proposal" if best.log_q > alone else "mixture"
    if won == "proposal":
        best.model.flatten()
    scores = {"energies": best.log_p, "proposal": best.log_q, "mixture": alone}
    return (mixture if won == "mixture" else best.model).eval(), {
        "train": to_mapping(plan.training),
        "start": start,
        "energy_from": 0,
        "tried": trainings.tried,
        "won": won,
        "kept": won != "mixture",
        "steps": sum(entry.get("steps", 0) for entry in trainings.tried),
        "seconds": round(sum(entry.get("seconds", 0.0) for entry in trainings.tried), 2),
        "best_step": best.progress.best_step,
        "validation_log_prob": scores[won],
        "proposal_validation_log_prob": best.log_q,
        "mixture_validation_log_prob": alone,
        "interrupted": trainings.interrupted,
        "history": best.progress.history,
    }
