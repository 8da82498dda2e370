"""Settings from data: what a table's rows and columns say about the model that fits it.

A fit has three parts. First a Gaussian mixture of all columns, by expectation maximisation: its size
and how much its components share are chosen on rows it has not seen. Tables too small to train a
network on get it at once, pooled over several starts, because that is better still.

Then the proposals, from two anchors: that mixture, and a single Gaussian whose conditionals the
network may make mixtures of as it likes. The first is better where columns are few, the second where
they are many and a mixture knows its own rows too well; held-out rows choose. Last the energies, which
learn what the better of the two misses. Each stops when held-out rows no longer gain, and where they
gain nothing at all, the mixture alone stays. Heavy-tailed columns are transformed to normal scores in
all of this, if a small mixture gives held-out rows a higher density then.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aem.base.checks import check_table, refuse_extreme
from aem.base.devices import choose_device
from aem.base.progress import Report, silent
from aem.base.settings import SEEDS, to_mapping
from aem.base.threads import libraries_alone
from aem.config import ModelConfig, TrainConfig
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.mixture import JointMixture, MixtureRows, fit_mixture
from aem.model.transforms.base import Chain
from aem.model.transforms.normal_scores import crowding, heavy_tailed
from aem.model.transforms.offset import Offset
from aem.nn.features import LOWEST_FREQUENCY, supported_frequency
from aem.tables.discrete import Discrete, dequantise, lattice, recognise
from aem.tables.fit.settings import FitSettings
from aem.tables.model import TableModel
from aem.training.checkpoint import TrainingState
from aem.training.loop import fit, validation_scores
from aem.training.proposal import proposal_score, train_proposal

Array = NDArray[np.float64]

# Below, a fit should take seconds; on the two tables looked at (142 and 455 rows) held-out rows
# gained nothing from a network. Where between those and this it begins to pay was not measured.
FEWEST_ROWS_TO_TRAIN = 2000
HELD_OUT = 10  # one row in this many decides when to stop
MOST_HELD_OUT = 1000  # more decide nothing else, and are missed in training
FOLDS = 4  # small tables choose their mixture by cross-validation
FEW_ROWS = 600  # above, one of the folds is enough to choose by
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)  # of mixtures
MOST_COMPONENTS = SIZES[-1]
CHOOSING = 25  # iterations that tell mixtures apart
BATCH = 256
PASSES, ENERGY_PASSES = 24, 12  # at most: rows may be known by heart before
PATIENCE = 8
# Steps × (columns + 20), which is about what they cost: meant to stay within five minutes on two cores.
AFFORDABLE, ENERGIES_AFFORDABLE = 100_000, 40_000
# With many columns the waves of each are more than the rows can teach; a wider network is not.
MANY_COLUMNS = 15
MIN_SCALE = 1e-3
LOOKING = 16  # components that tell whether normal scores help
MOST_CROWDING = 32.0
COPIES = 16  # of a single Gaussian, for the network to make a mixture of
SCALE_OF_COPIES = 0.5  # of the Gaussian's, at first
JUDGED = 20_000  # held-out rows × columns that judge the energies: each takes a hundred nodes
KNOWN = 0.3  # nats a mixture may favour its own rows by and still be what networks start from
POOLED = 64  # components of several starts together; more in one mixture have to generalise
MOST_STARTS = 8
DRAWS = 8  # of every discrete value from its cell: a network must not learn one draw by heart
MOST_DRAWN_ROWS = 200_000
FAR = 1e4  # deviations from zero: single precision has seven digits


@dataclass(frozen=True)
class FittedTable:
    """A model, and which of the rows it was fitted to did not train it but judged."""

    table: TableModel
    held_out: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))


@dataclass(frozen=True)
class FitPlan:
    """How to train the proposals, and then the energies."""

    proposal: TrainConfig
    energy: TrainConfig


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
    _refuse_impossible(settings, len(x), seed)
    choose_device(device)  # says at once if there is none such
    columns = list(columns)
    x = check_table(x, columns=columns)
    refuse_extreme(x, columns)
    rng = np.random.default_rng(seed)
    discrete = recognise(x, columns)
    model_config, plan = choose(
        x if is_validation is None else x[~is_validation], settings, seed, device
    )
    networks = plan is not None and not keep_mixture  # a detector looks at the columns as they are
    unseen_rows = min(max(len(x) // HELD_OUT, 1), MOST_HELD_OUT) if plan else 0
    held_out = rng.permutation(len(x)) < unseen_rows if is_validation is None else is_validation
    raw = dequantise(x, columns, discrete, rng)
    transform = _transform(raw[~held_out], raw[held_out], columns, discrete, seed, networks)
    offsets = far_from_zero(_through(transform, x))
    if offsets.any():
        transform = transform.then(Offset(tuple(offsets.tolist())))
    spread = _through(transform, raw)
    check_table(spread, columns=columns, for_fitting=True)
    train, validation = spread[~held_out], spread[held_out]
    z, unseen = _standardised(train, validation)
    sizes = [k for k in SIZES if k <= most_components and 4 * k <= len(z)]
    if settings.components:
        sizes = [settings.components]
    joint, chosen = choose_mixture(z, unseen if plan else None, sizes, seed, report)
    model_config = replace(model_config, lattice=lattice(columns, discrete, offsets))
    about: dict[str, Any] = {
        "rows": len(x),
        "seed": seed,
        "mixture": chosen,
        "network": None,
    }
    anchored = _anchored(joint, 1, model_config, train, columns, seed)
    if plan is None:
        return FittedTable(TableModel(anchored.eval(), transform, discrete, about), held_out)
    draws = min(DRAWS, max(MOST_DRAWN_ROWS // len(train), 1)) if discrete else 1
    many = [train] + [
        _through(transform, dequantise(raw[~held_out], columns, discrete, rng))
        for _ in range(draws - 1)
    ]  # in its cell each value is drawn anew
    models = []
    if keep_mixture or _generalises(joint, z, unseen):
        models.append(anchored)
    if not keep_mixture:
        gaussian = fit_mixture(z, 1, float(z.shape[1]), seed).with_wide_component(z)
        models.append(_anchored(gaussian, COPIES, model_config, train, columns, seed))
    log_volume = _mean_log_det(transform, raw[held_out])
    model, about["network"] = _train(
        anchored, models, np.concatenate(many), validation, plan, log_volume, quiet
    )
    return FittedTable(TableModel(model, transform, discrete, about), held_out)


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


def _generalises(joint: JointMixture, z: Array, unseen: Array) -> bool:
    """Whether a mixture likes unseen rows about as much as its own.

    If not, then to a network, which sees its own alone, there is nothing left to learn.
    """
    own = joint.log_prob(z[: len(unseen)]).mean()
    return bool(own - joint.log_prob(unseen).mean() < KNOWN)


def _anchored(
    joint: JointMixture,
    copies: int,
    config: ModelConfig,
    train: Array,
    columns: Sequence[str],
    seed: int,
) -> AEM:
    """A fresh model at a mixture, or at copies of its components side by side, without memory."""
    joint = joint if copies == 1 else joint.repeated(copies)
    components = len(joint.log_weights)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AEM.for_data(replace(config, components=components), train, columns=columns)
    model.head.anchor(joint.log_weights, joint.means, joint.factors, memory=copies == 1)
    z, _ = _standardised(train, train)
    cells = np.array([step > 0 for _, step in config.lattice] or [False] * z.shape[1])
    model.embedding.frequencies.copy_(_ladders(z, cells, config.frequencies))
    if copies > 1:
        # Components on top of each other would receive the same gradient and never part.
        places = torch.special.ndtri((torch.arange(copies) + 0.5) / copies)
        with torch.no_grad():
            _, shift, stretch = (
                model.arnn.biases()[:, : 3 * components].view(-1, 3, components)[..., :-1].unbind(1)
            )
            shift.copy_(places.repeat(len(joint.log_weights) // copies))
            stretch.fill_(math.log(SCALE_OF_COPIES))
    return model


def _refuse_impossible(settings: FitSettings, rows: int, seed: int) -> None:
    if settings.components is not None and settings.components > max(rows // 2, 1):
        raise AemError(
            f"components must be at most half the number of rows ({rows:,}), not "
            f"{settings.components:,}"
        )
    if not 0 <= seed < SEEDS:
        raise AemError(f"a seed must lie between 0 and {SEEDS - 1:,}, not {seed}")


def far_from_zero(x: Array) -> Array:
    """What to subtract from each column [D]: nothing, unless it lies far from zero.

    So far, as times in seconds do, that the mean a model keeps in single precision would not be in
    its middle.
    """
    spread = x.std(0)
    middle: Array = np.sort(x, axis=0)[len(x) // 2]  # a value of the column: whole if those are
    return np.where(np.abs(middle) > FAR * np.where(spread > 0, spread, 1.0), middle, 0.0)


def choose(
    x: Array, settings: FitSettings, seed: int, device: str
) -> tuple[ModelConfig, FitPlan | None]:
    """Sizes of the networks and how to train them; no training for a table too small for it."""
    rows, columns = x.shape

    def given(name: str, otherwise: float) -> Any:
        value = getattr(settings, name)
        return otherwise if value is None else value

    trains = settings.steps != 0 and (settings.steps or rows >= FEWEST_ROWS_TO_TRAIN)
    if not trains:
        return ModelConfig(
            hidden=max(16, columns), blocks=2, gamma=1, energy_hidden=1, energy_blocks=0,
            proposal="anchored", min_scale=MIN_SCALE, frequencies=0,
        ), None  # fmt: skip
    few = columns < MANY_COLUMNS
    model = ModelConfig(
        hidden=max(given("hidden", 256 if few else 512), columns),
        blocks=2,
        dropout=given("dropout", 0.2),
        gamma=32,
        energy_hidden=48,
        energy_blocks=1,
        proposal="anchored",
        min_scale=MIN_SCALE,
        frequencies=given("frequencies", (4 if rows < 10_000 else 8) if few else 0),
    )
    batch = given("batch_size", BATCH)
    proposal = TrainConfig(
        steps=given("steps", _steps(rows, columns, PASSES, batch, AFFORDABLE)),
        batch_size=batch,
        learning_rate=given("learning_rate", 3e-3),
        weight_decay=given("weight_decay", 0.05),
        averaging=0.995,
        patience=PATIENCE,
        seed=seed,
        device=device,
    )
    steps = given("steps", _steps(rows, columns, ENERGY_PASSES, batch, ENERGIES_AFFORDABLE))
    energy = replace(proposal, steps=steps, learning_rate=proposal.learning_rate / 10, nodes=8)
    return model, FitPlan(
        *(
            replace(config, validate_every=min(max(config.steps // validations, 10), config.steps))
            for config, validations in ((proposal, 30), (energy, 20))
        )
    )


def _ladders(z: Array, cells: NDArray[np.bool_], count: int) -> Tensor:
    """Frequencies [D, F] of standardised columns, as high as the rows support, and no higher.

    Where most rows crowd into a small part of a column's range, as with a long tail, they support
    higher ones; not so in a discrete column, where they would tell nothing but places in its cells. A
    comb of rounded values is not for a practitioner's density to find: it would call every row that
    was rounded otherwise impossible. Where values repeat the column is discrete anyway.
    """
    times = crowding(z).clip(1.0, MOST_CROWDING)
    top = np.where(cells, 1.0, times) * supported_frequency(len(z))
    return torch.from_numpy(np.geomspace(LOWEST_FREQUENCY, top, count).T).float()


def _steps(rows: int, columns: int, passes: int, batch: int, affordable: float) -> int:
    """Enough to pass over the rows so often, as far as five minutes of a CPU allow."""
    return int(min(max(rows * passes / batch, 100), affordable / (columns + 20)))


def choose_mixture(
    z: Array, unseen: Array | None, sizes: Sequence[int], seed: int, report: Report
) -> tuple[JointMixture, dict[str, Any]]:
    """The mixture whose size and sharing suit held-out rows best, and what was chosen.

    Without held-out rows they come from cross-validation, and all rows fit the mixture that is kept.
    """
    columns = z.shape[1]
    splits = [(z, unseen)] if unseen is not None else _folds(z, seed)
    folds = [(MixtureRows(a, seed), b) for a, b in splits]
    rows = folds[0][0] if unseen is not None else MixtureRows(z, seed)
    best = (-math.inf, 1, 0.0)
    for done, size in enumerate(sizes):
        tried, general = [], True
        for prior in (0.2 * columns, columns, 4.0 * columns):
            mixtures = [
                fit_mixture(a, size, prior, seed, CHOOSING).with_wide_component(a.z)
                for a, _ in folds
            ]
            scores = [m.log_prob(b).mean() for m, (_, b) in zip(mixtures, folds, strict=True)]
            tried.append((float(np.mean(scores)), size, prior))
            if len(tried) > 1 and tried[-1][0] < tried[-2][0]:
                break  # the more is shared, the worse
            general = size <= POOLED or all(
                _generalises(m, a.z, b) for m, (a, b) in zip(mixtures, folds, strict=True)
            )
        report("mixture", done + 1, len(sizes))
        if max(tried)[0] < best[0]:
            break  # the more components, the worse
        if done and not general:
            break  # the best of them knows its own rows too well for a network to start from
        best = max(best, *tried)
    score, size, prior = best
    starts = min(max(POOLED // size, 1), MOST_STARTS)
    mixtures = [fit_mixture(rows, size, prior, seed + start) for start in range(starts)]
    joint = JointMixture.pooled(mixtures).with_wide_component(z)
    return joint, {"components": size, "prior_rows": prior, "starts": starts, "score": score}


def _folds(z: Array, seed: int) -> list[tuple[Array, Array]]:
    fold = np.random.default_rng(seed).permutation(len(z)) % FOLDS
    chosen = range(FOLDS if len(z) < FEW_ROWS else 1)
    return [(z[fold != f], z[fold == f]) for f in chosen]


def _train(
    mixture: AEM,
    models: Sequence[AEM],
    train: Array,
    validation: Array,
    plan: FitPlan,
    log_volume: float,
    quiet: bool,
) -> tuple[AEM, dict[str, Any]]:
    """Train the proposals of models, then the energies of the best; what held-out rows gain stays.

    Where nothing is better the mixture remains, which may be one of the models.
    """
    device = choose_device(plan.energy.device)
    mixture.to(device).eval()
    unseen = mixture.standardise(torch.from_numpy(validation))
    alone = best = proposal_score(mixture, unseen) + log_volume
    model, first, scores = mixture, TrainingState(), []
    for candidate in models:
        before = {name: value.clone() for name, value in candidate.state_dict().items()}
        progress = train_proposal(candidate, train, validation, plan.proposal, best, log_volume)
        scores.append(progress.best_score)
        if progress.best_score > best:
            model, best, first = candidate, progress.best_score, progress
        else:
            candidate.load_state_dict(before)
    judging = unseen[: max(JUDGED // unseen.shape[1], 1)]
    without = validation_scores(model, judging, None)[0] + log_volume
    before = {name: value.clone() for name, value in model.state_dict().items()}
    some = validation[: len(judging)]
    progress = fit(model, train, some, plan.energy, log_volume=log_volume, quiet=quiet)
    gain = max(progress.best_score - without, 0.0)
    if not gain:
        model.load_state_dict(before)
    model.eval()
    return model, {
        "train": to_mapping(plan.energy),
        "proposal": to_mapping(plan.proposal),
        "anchor": "mixture" if model is mixture else "gaussian",
        "steps": first.step + progress.step,
        "energy_from": first.step,
        "best_step": first.step + progress.best_step if gain else first.best_step,
        "seconds": round(first.seconds + progress.seconds, 2),
        "validation_log_prob": best + gain,
        "proposal_validation_log_prob": scores,
        "mixture_validation_log_prob": alone,
        "kept": best + gain > alone,
        "history": first.history
        + [{**point, "step": first.step + point["step"]} for point in progress.history],
    }
