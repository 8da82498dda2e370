"""A fit that chooses its own settings from the rows and columns of a table.

First a Gaussian mixture of all columns, by expectation maximisation (`mixtures`). A table too small to
train a network on gets it at once, pooled over several starts, because that is better still. On larger
ones networks learn what the mixture misses (`starts`, `networks`), in sizes and for a time that follow
from the table (`plan`); validation rows, which share no row with the training rows (`split`), choose
what is kept. Heavy-tailed columns are transformed to normal scores in all of this, if a small mixture
gives validation rows a higher density then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aem.base.checks import check_table, refuse_extreme
from aem.base.devices import choose_device
from aem.base.progress import Report, silent
from aem.base.settings import SEEDS
from aem.base.threads import libraries_alone
from aem.errors import AemError, Interrupted
from aem.model.mixture import fit_mixture
from aem.model.transforms.base import Chain
from aem.model.transforms.normal_scores import heavy_tailed
from aem.model.transforms.offset import Offset
from aem.tables.discrete import Discrete, dequantise, lattice, recognise
from aem.tables.fit.determined import determined
from aem.tables.fit.mixtures import CHOOSING, MOST_COMPONENTS, SIZES, choose_mixture, generalises
from aem.tables.fit.networks import Judge, train_networks
from aem.tables.fit.plan import plan_fit
from aem.tables.fit.settings import FitSettings
from aem.tables.fit.split import Groups, by_chance, copies, hold_out
from aem.tables.fit.starts import COPIES, anchored_model
from aem.tables.model import TableModel

Array = NDArray[np.float64]

LOOKING = 16  # components that tell whether normal scores help
DRAWS = 8  # of every discrete value from its cell: a network must not overfit a single one
MOST_DRAWN_ROWS = 200_000
FAR = 1e4  # deviations from zero: single precision has seven digits
FEWEST_ROWS_OF_NETWORKS = 20  # that differ, where a user asks for networks whatever the table


@dataclass(frozen=True)
class FittedTable:
    """A model, and which of the rows it was fitted to did not train it but judged.

    Parameters
    ----------
    table
        the model.
    held_out
        marks the validation rows; empty where there are none.
    """

    table: TableModel
    held_out: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))


class FitInterrupted(Interrupted):
    """The user stopped the training of networks; the best model so far is at hand.

    Parameters
    ----------
    fitted
        that model.
    """

    def __init__(self, fitted: FittedTable) -> None:
        super().__init__("the training was interrupted; the model is the best so far")
        self.fitted = fitted


@libraries_alone()
def fit_table(
    x: Array,
    columns: Sequence[str],
    *,
    settings: FitSettings | None = None,
    most_components: int = MOST_COMPONENTS,
    keep_mixture: bool = False,
    is_validation: NDArray[np.bool_] | None = None,
    seed: int = 0,
    device: str = "auto",
    report: Report = silent,
    quiet: bool = True,
) -> FittedTable:
    """Fit a model to the rows of a table without being told how.

    Rows marked by `is_validation` say when to stop, and train nothing; otherwise some are chosen.
    `most_components` bounds the mixture where the settings leave its size to the data; with
    `keep_mixture` it is the mixture that networks start from, whatever else would be better.
    """
    settings = settings or FitSettings()
    columns = list(columns)
    x = check_table(x, columns=columns)
    refuse_extreme(x, columns)
    rng = np.random.default_rng(seed)
    groups, discrete = _groups(x, columns)
    training = np.ones(len(x), dtype=bool) if is_validation is None else ~is_validation
    distinct = len(np.unique(groups[training]))
    _refuse_impossible(settings, distinct, seed)
    choose_device(device)  # says at once if there is none such
    model_config, plan = plan_fit(distinct, len(columns), settings, seed, device)
    held_out = hold_out(groups, rng) if is_validation is None else is_validation
    if plan is None and is_validation is None:
        held_out = np.zeros(len(x), dtype=bool)  # cross-validation judges, and all rows train
    raw = dequantise(x, columns, discrete, rng)
    networks = plan is not None and not keep_mixture  # a detector looks at the columns as they are
    transform = _transform(raw[~held_out], raw[held_out], columns, discrete, seed, networks)
    offsets = far_from_zero(_through(transform, x))
    if offsets.any():
        transform = transform.then(Offset(tuple(offsets.tolist())))
    spread = _through(transform, raw)
    check_table(spread, columns=columns, for_fitting=True)
    _refuse_merged(spread, columns)
    train, validation = spread[~held_out], spread[held_out]
    z, unseen = _standardised(train, validation)
    sizes = [k for k in SIZES if k <= most_components and 4 * k <= distinct]
    if settings.components:
        sizes = [settings.components]
    joint, chosen = choose_mixture(
        z, unseen if plan else None, sizes, seed, report, groups[~held_out]
    )
    model_config = replace(model_config, lattice=lattice(columns, discrete, offsets))
    about: dict[str, Any] = {
        "rows": len(x),
        "copies": len(x) - len(np.unique(groups)),
        "seed": seed,
        "mixture": chosen,
        "network": None,
    }
    mixture = anchored_model(joint, model_config, train, columns, seed)
    if plan is None:
        about["determined"] = determined(mixture.eval(), train, columns, discrete)
        return FittedTable(TableModel(mixture.eval(), transform, discrete, about), held_out)
    draws = min(DRAWS, max(MOST_DRAWN_ROWS // len(train), 1)) if discrete else 1
    many = [train] + [
        _through(transform, dequantise(raw[~held_out], columns, discrete, rng))
        for _ in range(draws - 1)
    ]  # in its cell each value is drawn anew
    starts = {}
    if keep_mixture or generalises(joint, z, unseen):
        starts["mixture"] = mixture
    if not keep_mixture:
        gaussian = fit_mixture(z, 1, float(z.shape[1]), seed).with_wide_component(z)
        starts["gaussian"] = anchored_model(
            gaussian, model_config, train, columns, seed, copies=COPIES
        )
    judge = Judge(validation, _mean_log_det(transform, raw[held_out]))
    model, about["network"] = train_networks(
        mixture, starts, np.concatenate(many), judge, plan, quiet=quiet
    )
    about["determined"] = determined(model, train, columns, discrete)
    fitted = FittedTable(TableModel(model, transform, discrete, about), held_out)
    if about["network"]["interrupted"]:
        raise FitInterrupted(fitted)
    return fitted


def _groups(x: Array, columns: Sequence[str]) -> tuple[Groups, list[Discrete]]:
    """Tell copies of rows from rows that agree by chance; values of copies make no column discrete."""
    groups = copies(x)
    if by_chance(x, groups):
        return np.arange(len(x)), recognise(x, columns)
    _, first = np.unique(groups, return_index=True)
    return groups, recognise(x[first], columns)


def _through(transform: Chain, x: Array) -> Array:
    """Rows as the model reads them."""
    read: Array = transform.forward(torch.from_numpy(x)).numpy()
    return read


def _mean_log_det(transform: Chain, x: Array) -> float:
    """What the log densities of rows are more than those of what the model reads, on average."""
    return float(transform.log_det(torch.from_numpy(x)).numpy().mean())


def _standardised(train: Array, validation: Array) -> tuple[Array, Array]:
    shift, scale = train.mean(0), train.std(0)
    return (train - shift) / scale, (validation - shift) / scale


def _transform(
    train: Array,
    validation: Array,
    columns: list[str],
    discrete: Sequence[Discrete],
    seed: int,
    networks: bool,
) -> Chain:
    """Normal scores of heavy-tailed columns, if a small mixture then suits held-out rows better."""
    plain = Chain()
    transformed = Chain(heavy_tailed(train, [columns.index(c.column) for c in discrete]))
    if not networks or not transformed.parts:
        return plain
    scores = []
    for some in (plain, transformed):
        a, b = (_through(some, rows) for rows in (train, validation))
        z, unseen = _standardised(a, b)
        mixture = fit_mixture(z, LOOKING, float(len(columns)), seed, CHOOSING)
        score = mixture.with_wide_component(z).log_prob(unseen) - np.log(a.std(0)).sum()
        log_det = some.log_det(torch.from_numpy(validation)).numpy()
        scores.append(float((score + log_det).mean()))
    return transformed if scores[1] > scores[0] else plain


def _refuse_impossible(settings: FitSettings, rows: int, seed: int) -> None:
    if settings.components is not None and settings.components > max(rows // 2, 1):
        raise AemError(
            f"components must be at most half the number of rows ({rows:,}), not "
            f"{settings.components:,}"
        )
    if settings.steps and rows < FEWEST_ROWS_OF_NETWORKS:
        raise AemError(
            f"networks need at least {FEWEST_ROWS_OF_NETWORKS} rows that differ, and the table has "
            f"{rows}: leave 'steps' to the fit"
        )
    if not 0 <= seed < SEEDS:
        raise AemError(f"a seed must lie between 0 and {SEEDS - 1:,}, not {seed}")


def _refuse_merged(x: Array, columns: Sequence[str]) -> None:
    """Refuse a value so far from the others that these are one number in single precision."""
    z = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    for name, exact, single in zip(columns, x.T, z.T, strict=True):
        if 2 * len(np.unique(single)) < len(np.unique(exact)):
            row = int(np.abs(exact - np.median(exact)).argmax())
            raise AemError(
                f"column '{name}' has {exact[row]:g} in row {row}, so far from its other values that "
                "single precision cannot tell these apart: correct that row or leave it out"
            )


def far_from_zero(x: Array) -> Array:
    """What to subtract from each column [D]: nothing, unless it lies far from zero.

    So far, as times in seconds do, that the mean a model keeps in single precision would not be in
    its middle.
    """
    spread = x.std(0)
    middle: Array = np.sort(x, axis=0)[len(x) // 2]  # a value of the column: whole if those are
    return np.where(np.abs(middle) > FAR * np.where(spread > 0, spread, 1.0), middle, 0.0)
