"""Settings from data: what a table's rows and columns say about the model that fits it.

A fit has two parts. First a Gaussian mixture of all columns, by expectation maximisation: its size
and how much its components share are chosen on rows it has not seen. It becomes the anchor of the
proposals. Then the networks, which learn what the mixture misses and stop when held-out rows no
longer gain; where they gain nothing at all, the mixture alone stays. Tables too small to train a
network on get the mixture at once, pooled over several starts, because that is better still.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aem.anchored import AnchoredHead
from aem.config import ModelConfig, TrainConfig, to_mapping
from aem.discrete import Discrete, dequantise, lattice, recognise
from aem.errors import AemError
from aem.joint import JointMixture, fit_mixture
from aem.model import AEM
from aem.nn.features import LOWEST_FREQUENCY, supported_frequency
from aem.table import check_table
from aem.training.loop import choose_device, fit, validation_scores

Array = NDArray[np.float64]
Report = Callable[[str, int, int], None]  # what is being done, done, in all

# Below, a fit should take seconds; on the two tables looked at (142 and 455 rows) held-out rows
# gained nothing from a network. Where between those and this it begins to pay was not measured.
FEWEST_ROWS_TO_TRAIN = 2000
HELD_OUT = 10  # one row in this many decides when to stop
MOST_HELD_OUT = 2000  # more decide nothing else
FOLDS = 4  # small tables choose their mixture by cross-validation
FEW_ROWS = 600  # above, one of the folds is enough to choose by
SIZES = (1, 2, 4, 8, 16, 32, 64)  # of mixtures
MOST_COMPONENTS = SIZES[-1]
CHOOSING = 25  # iterations that tell mixtures apart
BATCH = 128
PASSES = 8  # with a learning rate that ends at zero, before the rows are known by heart
AFFORDABLE = 60_000  # steps × columns: meant to stay within five minutes on two cores
POOLED = 64  # components of several starts together
MOST_STARTS = 8
DRAWS = 8  # of every discrete value from its cell: a network must not learn one draw by heart
MOST_DRAWN_ROWS = 200_000
LEAST = {"components": 1, "hidden": 1, "steps": 0, "batch_size": 1, "frequencies": 0, "dropout": 0}
FAR = 1e4  # deviations from zero: single precision has seven digits


@dataclass(frozen=True)
class Settings:
    """What the user may set; None leaves it to the data."""

    components: int | None = None
    hidden: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    dropout: float | None = None
    weight_decay: float | None = None
    frequencies: int | None = None


@dataclass(frozen=True)
class Fitted:
    """A model, its discrete columns, and how it came about as JSON can hold it."""

    model: AEM
    discrete: tuple[Discrete, ...]
    about: dict[str, Any]
    held_out: NDArray[np.bool_] = field(  # rows that did not train it; a file does not know
        default_factory=lambda: np.zeros(0, dtype=bool)
    )


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


def fit_table(
    x: Array,
    columns: Sequence[str],
    *,
    settings: Settings | None = None,
    most_components: int = MOST_COMPONENTS,
    seed: int = 0,
    device: str = "auto",
    report: Report = silent,
    quiet: bool = True,
) -> Fitted:
    """Fit a model to the rows of a table without being told how.

    `most_components` bounds the mixture where the settings leave its size to the data.
    """
    settings = settings or Settings()
    _refuse_impossible(settings)
    choose_device(device)  # says at once if there is none such
    columns = list(columns)
    x = check_table(x, columns=columns)
    refuse_extreme(x, columns)
    rng = np.random.default_rng(seed)
    discrete = recognise(x, columns)
    model_config, train_config = choose(x, settings, seed, device)
    trains = train_config is not None
    unseen_rows = min(max(len(x) // HELD_OUT, 1), MOST_HELD_OUT) if trains else 0
    held_out = rng.permutation(len(x)) < unseen_rows
    offsets = far_from_zero(x)
    spread = dequantise(x, columns, discrete, rng) - offsets
    check_table(spread, columns=columns, for_fitting=True)
    train, validation = spread[~held_out], spread[held_out]
    shift, scale = train.mean(0), train.std(0)
    z, unseen = (train - shift) / scale, (validation - shift) / scale
    sizes = [k for k in SIZES if k <= most_components and 4 * k <= len(z)]
    if settings.components:
        sizes = [settings.components]
    joint, chosen = choose_mixture(z, unseen if trains else None, sizes, seed, report)
    model_config = replace(
        model_config,
        components=len(joint.log_weights),
        lattice=lattice(columns, discrete, offsets),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AEM.for_data(model_config, train, columns=columns)
    if not isinstance(model.head, AnchoredHead):
        raise TypeError("an automatic model has an anchored proposal")
    model.head.anchor(joint)
    model.embedding.frequencies.copy_(_ladder(len(train), model_config.frequencies))
    about: dict[str, Any] = {
        "rows": len(x),
        "seed": seed,
        "mixture": chosen,
        "discrete": [column.as_record() for column in discrete],
        "network": None,
    }
    if offsets.any():
        about["offsets"] = {name: float(o) for name, o in zip(columns, offsets, strict=True) if o}
    if train_config is None:
        return Fitted(model.eval(), tuple(discrete), about, held_out)
    draws = min(DRAWS, max(MOST_DRAWN_ROWS // len(train), 1)) if discrete else 1
    many = [train] + [
        dequantise(train + offsets, columns, discrete, rng) - offsets for _ in range(draws - 1)
    ]  # in its cell each value is drawn anew
    about["network"] = _train(model, np.concatenate(many), validation, train_config, quiet)
    return Fitted(model, tuple(discrete), about, held_out)


def _refuse_impossible(settings: Settings) -> None:
    for name, least in LEAST.items():
        value = getattr(settings, name)
        if value is not None and value < least:
            raise AemError(f"{name} must be at least {least}, not {value}")


def far_from_zero(x: Array) -> Array:
    """What to subtract from each column [D]: nothing, unless it lies so far from zero, as times in
    seconds do, that the mean a model keeps in single precision would not be in its middle.
    """
    spread = x.std(0)
    middle: Array = np.sort(x, axis=0)[len(x) // 2]  # a value of the column: whole if those are
    return np.where(np.abs(middle) > FAR * np.where(spread > 0, spread, 1.0), middle, 0.0)


def refuse_extreme(x: Array, columns: Sequence[str]) -> None:
    """Say which column has values that single precision, in which a model computes, cannot hold."""
    largest = np.abs(x).max(axis=0, initial=0.0)
    extreme = np.flatnonzero(largest >= 0.1 * np.finfo(np.float32).max)
    if len(extreme):
        d = int(extreme[0])
        raise AemError(
            f"column '{columns[d]}' of the data has a value of {largest[d]:.3g}, too extreme to "
            "compute with"
        )


def choose(
    x: Array, settings: Settings, seed: int, device: str
) -> tuple[ModelConfig, TrainConfig | None]:
    """Sizes of the networks and how to train them; no training for a table too small for it."""
    rows, columns = x.shape

    def given(name: str, otherwise: float) -> Any:
        value = getattr(settings, name)
        return otherwise if value is None else value

    steps = given("steps", 0 if rows < FEWEST_ROWS_TO_TRAIN else _steps(rows, columns))
    hidden = max(given("hidden", 192 if rows < 10_000 else 256), columns)
    model = ModelConfig(
        hidden=hidden if steps else max(16, columns),
        blocks=2,
        dropout=given("dropout", 0.2 if columns < 15 else 0.3),
        gamma=32 if steps else 1,
        energy_hidden=48 if steps else 1,
        energy_blocks=1 if steps else 0,
        proposal="anchored",
        min_scale=1e-3,
        frequencies=given("frequencies", 4 if rows < 10_000 else 6) if steps else 0,
    )
    if not steps:
        return model, None
    train = TrainConfig(
        steps=steps,
        batch_size=given("batch_size", BATCH),
        learning_rate=given("learning_rate", 1e-3),
        weight_decay=given("weight_decay", 0.05),
        nodes=8,
        averaging=0.99 if steps < 2000 else 0.995,
        validate_every=min(max(steps // 40, 10), steps),
        patience=8,
        seed=seed,
        device=device,
    )
    return model, train


def _ladder(rows: int, count: int) -> Tensor:
    """Frequencies as high as the rows support, and no higher.

    A comb of rounded values is not for a practitioner's density to find: it would call every row
    that was rounded otherwise impossible. Where values repeat the column is discrete anyway.
    """
    ladder = np.geomspace(LOWEST_FREQUENCY, supported_frequency(rows), count)
    return torch.from_numpy(ladder).float()


def _steps(rows: int, columns: int) -> int:
    """Enough to pass over the rows some eight times, as far as five minutes of a CPU allow."""
    affordable = AFFORDABLE / max(columns, 4)
    return int(min(max(rows * PASSES / BATCH, 300), affordable))


def choose_mixture(
    z: Array, unseen: Array | None, sizes: Sequence[int], seed: int, report: Report
) -> tuple[JointMixture, dict[str, Any]]:
    """The mixture whose size and sharing suit held-out rows best, and what was chosen.

    Without held-out rows they come from cross-validation, and all rows fit the mixture that is kept.
    """
    columns = z.shape[1]
    folds = [(z, unseen)] if unseen is not None else _folds(z, seed)
    best = (-math.inf, 1, 0.0)
    for done, size in enumerate(sizes):
        tried = []
        for prior in (0.2 * columns, columns, 4.0 * columns):
            scores = [
                fit_mixture(a, size, prior, seed, CHOOSING)
                .with_wide_component(a)
                .log_prob(b)
                .mean()
                for a, b in folds
            ]
            tried.append((float(np.mean(scores)), size, prior))
            if len(tried) > 1 and tried[-1][0] < tried[-2][0]:
                break  # the more is shared, the worse
        report("mixture", done + 1, len(sizes))
        if max(tried)[0] < best[0]:
            break  # the more components, the worse
        best = max(best, *tried)
    score, size, prior = best
    starts = min(max(POOLED // size, 1), MOST_STARTS)
    mixtures = [fit_mixture(z, size, prior, seed + start) for start in range(starts)]
    joint = JointMixture.pooled(mixtures).with_wide_component(z)
    return joint, {"components": size, "prior_rows": prior, "starts": starts, "score": score}


def _folds(z: Array, seed: int) -> list[tuple[Array, Array]]:
    fold = np.random.default_rng(seed).permutation(len(z)) % FOLDS
    chosen = range(FOLDS if len(z) < FEW_ROWS else 1)
    return [(z[fold != f], z[fold == f]) for f in chosen]


def _train(
    model: AEM, train: Array, validation: Array, config: TrainConfig, quiet: bool
) -> dict[str, Any]:
    """Train the networks; keep them only if held-out rows gain."""
    device = choose_device(config.device)
    model.to(device).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    shift, scale = model.shift.double().cpu().numpy(), model.scale.double().cpu().numpy()
    z = torch.from_numpy((validation - shift) / scale).to(device, model.shift.dtype)
    alone, _ = validation_scores(model, z, None)
    progress = fit(model, train, validation, config, quiet=quiet)
    if not progress.best_score > alone:
        model.load_state_dict(before)
    model.eval()
    return {
        "train": to_mapping(config),
        "steps": progress.step,
        "best_step": progress.best_step,
        "seconds": round(progress.seconds, 2),
        "validation_log_prob": progress.best_score,
        "mixture_validation_log_prob": alone,
        "kept": bool(progress.best_score > alone),
        "history": progress.history,
    }
