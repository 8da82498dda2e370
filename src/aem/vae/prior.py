"""An AEM as the prior of any encoder that yields Gaussian posteriors.

Examples
--------
>>> train, validation = (GaussianPosterior(*encoder(x)) for x in (x_train, x_validation))
>>> prior = fit_prior(train.sample, validation.sample, ModelConfig(hidden=256), TrainConfig())
>>> log_p, error = prior().log_prob_and_error(z)  # in the ELBO, in place of the Gaussian
>>> z = prior().sample((16,))  # and to the decoder, for new data
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.base.progress import Report, silent
from aem.config import ModelConfig, TrainConfig
from aem.model.aem import AEM
from aem.training.loop import fit

TRAIN_SEED, VALIDATION_SEED = 1, 2
LatentSampler = Callable[[int], Tensor]  # from a seed to one latent vector of every image

STANDARDISED_ON = 200_000  # rows are plenty for means and deviations


def fit_prior(
    train: LatentSampler,
    validation: LatentSampler,
    model: ModelConfig | None = None,
    config: TrainConfig | None = None,
    *,
    draws: int = 20,
    folder: str | Path | None = None,
    quiet: bool = False,
) -> AEM:
    """Fit an AEM to samples of the aggregate posterior.

    A sampler takes a seed and draws one latent vector for every item of a data set;
    `GaussianPosterior.sample` is one.

    Parameters
    ----------
    train
        sampler of the training data's latents.
    validation
        sampler of the validation data's latents, one draw of which chooses the weights.
    model
        sizes and forms of the networks; the defaults of `ModelConfig` without any.
    config
        settings of the training; the defaults of `TrainConfig` without any.
    draws
        how many latents of each training item the prior is fitted to.
    folder
        folder for checkpoints; none are written without one.
    quiet
        whether to show no progress.
    """
    rows = draw_table(train, draws, TRAIN_SEED)
    prior = AEM.for_data(model or ModelConfig(), rows[:STANDARDISED_ON])
    fit(prior, rows, draw_table(validation, 1, VALIDATION_SEED), config, folder=folder, quiet=quiet)
    return prior


def draw_table(
    sampler: LatentSampler, draws: int, seed: int = 0, report: Report = silent
) -> NDArray[np.float32]:
    """Draw latents several times, as a table to fit a prior to.

    Parameters
    ----------
    sampler
        a function of a seed that draws one latent vector of every item.
    draws
        how many latents of each item.
    seed
        seeds of different tables never meet.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    parts = []
    for number in range(draws):
        # Seeds of different tables must not meet.
        rows: Float[Tensor, "N L"] = sampler(1_000_003 * seed + number)
        parts.append(rows.float().cpu().numpy())
        report("drawing latents to fit", number + 1, draws)
    return np.concatenate(parts)
