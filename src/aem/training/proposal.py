"""Training of a proposal by itself: a step costs a fraction of one with energies.

The energies of a model measure what its proposal misses; a proposal that held-out rows are content
with already leaves them little to do, and little to get wrong.
"""

import copy
import math
import time

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.base.devices import choose_device
from aem.base.threads import alone, spread
from aem.config import TrainConfig
from aem.model.aem import AEM
from aem.training.batches import Batches
from aem.training.checkpoint import TrainingState
from aem.training.objective import DensityStep, Phase
from aem.training.optimizer import Descent
from aem.training.schedule import averaging_decay, cosine

BLOCK = {"cpu": 240, "cuda": 1024}  # rows scored together
OUT_OF_REACH = 1.5  # nats: none of the tables looked at gained as many after a third of the steps


@torch.no_grad()
def proposal_score(model: AEM, z: Float[Tensor, "N D"]) -> float:
    """Mean log q of standardised rows, in the units of the data."""

    def score(rows: Float[Tensor, "B D"]) -> float:
        log_q = model.conditionals(rows).proposal.log_prob(rows[..., None])
        return float(log_q.sum(dtype=torch.float64))

    total = sum(spread(score, z.split(BLOCK[z.device.type]), device=z.device.type))
    return total / len(z) - float(model.standardisation.scale.double().log().sum())


@alone()
def train_proposal(
    model: AEM,
    train: NDArray[np.float64],
    validation: NDArray[np.float64],
    config: TrainConfig,
    rival: float = -math.inf,
    log_volume: float = 0.0,
) -> TrainingState:
    """Train the proposal in place; the best averaged weights remain, and the energy as it was.

    Not to the end if it is so far behind a rival's score that the rest of the steps would not make up
    for it. `log_volume` is in all scores, as in `fit`.
    """
    device = choose_device(config.device)
    model.to(device).train()
    rows, unseen = (model.standardise(torch.from_numpy(x)) for x in (train, validation))
    untrained = copy.deepcopy(model.state_dict())
    average = copy.deepcopy(model).eval().requires_grad_(False)
    descent = Descent(model, average, config)
    batches = Batches(len(rows), config.batch_size, config.seed, device)
    step = DensityStep(model, descent, config, rows, None)
    progress, started = TrainingState(), time.monotonic()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        while progress.step < config.steps and not _exhausted(progress, config):
            rate = cosine(progress.step, config.steps, config.learning_rate, config.rise)
            descent.schedule(rate, averaging_decay(progress.step, config.averaging))
            loss = step.run(batches.indices(progress.step), Phase.PROPOSAL)
            progress.step += 1
            if progress.step % config.validate_every == 0 or progress.step == config.steps:
                score, value = proposal_score(average, unseen) + log_volume, float(loss)
                if not math.isfinite(value + score):
                    break  # what was best before remains
                seconds = time.monotonic() - started
                _record(progress, average, score, value, seconds)
                late = progress.step >= config.steps / 3
                if late and progress.best_score < rival - OUT_OF_REACH:
                    break
        descent.release()
    progress.seconds = time.monotonic() - started
    model.load_state_dict(progress.best_weights or untrained)
    model.eval()
    return progress


def _exhausted(progress: TrainingState, config: TrainConfig) -> bool:
    waited = (progress.step - progress.best_step) // config.validate_every
    return bool(config.patience and progress.best_weights and waited >= config.patience)


def _record(
    progress: TrainingState, average: AEM, score: float, loss: float, seconds: float
) -> None:
    progress.history.append(
        {
            "step": progress.step,
            "seconds": round(seconds, 3),
            "loss": loss,
            "validation_log_prob": score,
            "validation_proposal_log_prob": score,
        }
    )
    if score > progress.best_score:
        progress.best_score, progress.best_step = score, progress.step
        progress.best_weights = {k: v.detach().clone() for k, v in average.state_dict().items()}
