"""The mixture of all columns that an automatic fit starts from: its size and sharing suit the data.

It is fitted by expectation maximisation (`aem.model.mixture`). Its number of components, and how much
these share of their covariances, are chosen on rows that it was not fitted to.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aem.base.progress import Report, silent
from aem.model.mixture import JointMixture, MixtureRows, fit_mixture
from aem.tables.fit.split import Groups, folds

Array = NDArray[np.float64]

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_COMPONENTS = SIZES[-1]
CHOOSING = 25  # iterations that tell mixtures apart
KNOWN = 0.3  # nats: the largest train-validation gap of a mixture that networks may start from
POOLED = 64  # components of several starts together; more in one mixture must not overfit
MOST_STARTS = 8


def generalises(joint: JointMixture, z: Array, unseen: Array) -> bool:
    """Say whether a mixture scores validation rows about as high as its own.

    An overfitted mixture leaves a network, which sees the training rows alone, nothing to learn.

    Parameters
    ----------
    joint
        the mixture.
    z, unseen
        standardised training and validation rows.
    """
    own = joint.log_prob(z[: len(unseen)]).mean()
    return bool(own - joint.log_prob(unseen).mean() < KNOWN)


def choose_mixture(
    z: Array,
    unseen: Array | None,
    sizes: Sequence[int],
    seed: int,
    report: Report = silent,
    groups: Groups | None = None,
) -> tuple[JointMixture, dict[str, Any]]:
    """Fit the mixture whose size and sharing suit validation rows best.

    Parameters
    ----------
    z
        standardised training rows.
    unseen
        standardised validation rows; without any the choice is by cross-validation, and all rows fit
        the mixture that is kept.
    sizes
        numbers of components to try, rising.
    seed
        of the mixtures' starts and of the folds.
    report
        is told how many sizes have been tried.
    groups
        the group of each training row, for the folds; every row has its own without any.

    Returns
    -------
    joint : JointMixture
        the mixture, pooled over several starts if it is small.
    chosen : dict
        its number of components, prior rows and starts, and its validation score.
    """
    columns = z.shape[1]
    if unseen is None:
        groups = np.arange(len(z)) if groups is None else groups
        splits = [(z[~judging], z[judging]) for judging in folds(groups, seed)]
    else:
        splits = [(z, unseen)]
    parts = [(MixtureRows(a, seed), b) for a, b in splits]
    rows = parts[0][0] if unseen is not None else MixtureRows(z, seed)
    best = (-math.inf, 1, 0.0)
    for done, size in enumerate(sizes):
        tried, general = [], True
        for prior in (0.2 * columns, columns, 4.0 * columns):
            mixtures = [
                fit_mixture(a, size, prior, seed, CHOOSING).with_wide_component(a.z)
                for a, _ in parts
            ]
            scores = [m.log_prob(b).mean() for m, (_, b) in zip(mixtures, parts, strict=True)]
            tried.append((float(np.mean(scores)), size, prior))
            if len(tried) > 1 and tried[-1][0] < tried[-2][0]:
                break  # the more is shared, the worse
            general = size <= POOLED or all(
                generalises(m, a.z, b) for m, (a, b) in zip(mixtures, parts, strict=True)
            )
        report("mixture", done + 1, len(sizes))
        if max(tried)[0] < best[0]:
            break  # the more components, the worse
        if done and not general:
            break  # the best of them overfits too much for a network to start from
        best = max(best, *tried)
    score, size, prior = best
    starts = min(max(POOLED // size, 1), MOST_STARTS)
    mixtures = [fit_mixture(rows, size, prior, seed + start) for start in range(starts)]
    joint = JointMixture.pooled(mixtures).with_wide_component(z)
    return joint, {"components": size, "prior_rows": prior, "starts": starts, "score": score}
