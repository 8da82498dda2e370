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


@dataclass
class Trainings:
    """Trainings of one fit: what each was, and what it gave."""

    train: Array
    judge: Judge
    quiet: bool
    tried: list[dict[str, Any]] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)
    interrupted: bool = False

    def run(self, model: AEM, config: TrainConfig, stage: str) -> tuple[float, float]:
        """Train a model in place and score it; one whose numbers explode is left as it was.

        Parameters
        ----------
        model
            the model.
        config
            how to train it.
        stage
            what this is called, in the progress and in the record.

        Returns
        -------
        log_p, log_q : float
            its scores.
        """
        before, progress = copy.deepcopy(model.state_dict()), TrainingState()
        entry: dict[str, Any] = {"what": stage}
        try:
            progress = fit(
                model, self.train, self.judge.rows, config,
                log_volume=self.judge.log_volume, quiet=self.quiet, stage=stage,
            )  # fmt: skip
        except Interrupted:
            self.interrupted = entry["interrupted"] = True
        except AemError as error:
            model.load_state_dict(before)
            entry["failed"] = str(error)
        log_p, log_q = self.judge(model)
        self.tried.append({
            **entry, "score": log_p, "proposal": log_q, "steps": progress.step,
            "best_step": progress.best_step, "seconds": round(progress.seconds, 2),
        })  # fmt: skip
        self.history = progress.history
        return log_p, log_q


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

    start = next(iter(starts))
    if len(starts) > 1:
        race = {}
        for name, model in starts.items():
            stage = f"short training from the {name}"
            race[name] = max(trainings.run(copy.deepcopy(model), plan.race, stage))
            if trainings.interrupted:
                break
        start = max(race, key=lambda name: race[name])
    model = starts[start]
    log_p = log_q = alone
    if not trainings.interrupted:
        log_p, log_q = trainings.run(model, plan.training, f"density from the {start}")

    won = "energies"
    if log_p - max(log_q, alone) < WORTH:
        won = "proposal" if log_q > alone else "mixture"
    if won == "proposal":
        model.flatten()
    return (mixture if won == "mixture" else model).eval(), {
        "train": to_mapping(plan.training),
        "start": start,
        "energy_from": 0,
        "tried": trainings.tried,
        "won": won,
        "kept": won != "mixture",
        "steps": sum(entry.get("steps", 0) for entry in trainings.tried),
        "seconds": round(sum(entry.get("seconds", 0.0) for entry in trainings.tried), 2),
        "best_step": trainings.tried[-1].get("best_step", 0),
        "validation_log_prob": {"energies": log_p, "proposal": log_q, "mixture": alone}[won],
        "proposal_validation_log_prob": log_q,
        "mixture_validation_log_prob": alone,
        "interrupted": trainings.interrupted,
        "history": trainings.history,
    }
