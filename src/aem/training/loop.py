"""`fit`: trains a model on rows and keeps the averaged weights with the best validation score."""

import copy
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aem.base.checks import check_table
from aem.base.devices import choose_device, use_bfloat16
from aem.base.files import make_folder
from aem.base.randomness import drawing_from
from aem.base.threads import alone, spread
from aem.conditionals.estimates import log_z_estimate
from aem.config import TrainConfig
from aem.errors import AemError
from aem.model.aem import AEM
from aem.nn.transformer import CausalTransformer
from aem.training.batches import Batches
from aem.training.checkpoint import TrainingState, load_checkpoint, save_checkpoint
from aem.training.compiled import compiled
from aem.training.display import Reporter
from aem.training.objective import DensityStep
from aem.training.optimizer import Descent
from aem.training.steps import captured_on_gpu
from aem.training.trainer import Trainer, Validation

VALIDATION_NODES = 100
VALIDATED_TOGETHER = {"cpu": 128, "cuda": 1024}  # rows
BLOCK = 2**16  # rows standardised together


@torch.no_grad()
def validation_scores(
    model: AEM,
    z: Float[Tensor, "N D"],
    context: Float[Tensor, "N Q"] | None,
    *,
    energies: bool = True,
) -> tuple[float, float]:
    """Return the mean log p and log q of rows in the units of the data, by the same random nodes.

    Parameters
    ----------
    model
        the model, in evaluation mode.
    z
        standardised rows, on the model's device.
    context
        their standardised context, or none.
    energies
        whether energies are evaluated; without them p is taken to be q, which costs a fraction.
    """
    size = VALIDATED_TOGETHER[z.device.type]

    def score(block: int) -> tuple[float, float]:
        here = slice(block * size, (block + 1) * size)
        rows = z[here]
        with drawing_from(block, z.device):
            conditionals = model.conditionals(rows, None if context is None else context[here])
            q = p = conditionals.proposal.log_prob_of(rows)
            if energies:
                w = conditionals.log_weight(rows[..., None])[..., 0]
                p = q + w - log_z_estimate(conditionals, nodes=VALIDATION_NODES)
        return float(p.sum(dtype=torch.float64)), float(q.sum(dtype=torch.float64))

    sums = zip(*spread(score, range(-(-len(z) // size)), device=z.device.type), strict=True)
    log_p, log_q = (sum(part) / len(z) for part in sums)
    log_scale = float(model.standardisation.scale.double().log().sum())
    return log_p - log_scale, log_q - log_scale


@alone()
def fit(
    model: AEM,
    train: ArrayLike,
    validation: ArrayLike,
    config: TrainConfig | None = None,
    *,
    context: NDArray[np.floating] | None = None,
    validation_context: NDArray[np.floating] | None = None,
    log_volume: float = 0.0,
    folder: str | Path | None = None,
    quiet: bool = False,
    stage: str = "training",
) -> TrainingState:
    """Fit a model in place and leave the best averaged weights in it.

    The weights kept are those with the highest validation log density, also where the run is
    interrupted. Where all steps are warm-up the proposal is trained alone, and no energy is evaluated.

    With a folder the run writes checkpoints, and a run with the same settings continues from them. On a
    CPU it ends with the same bits as an uninterrupted run.

    Parameters
    ----------
    model
        a model whose standardisation fits the rows, as `AEM.for_data` makes it.
    train
        rows [N, D]: an array, or a data frame, whose columns are matched by name.
    validation
        rows that the weights are chosen by, of the same columns.
    config
        steps, batches, learning rate and the rest; the defaults of `TrainConfig` without any.
    context
        the context of each training row [N, Q], where p(x | context) is learnt.
    validation_context
        the context of each validation row.
    log_volume
        mean log |det| of a transform that the rows have been through. It is added to all scores,
        which are then in the units before the transform.
    folder
        folder for checkpoints and TensorBoard's files; none are written without one.
    quiet
        whether to show no progress.
    stage
        what the progress is called.

    Returns
    -------
    TrainingState
        how many steps the run took, its best score, and the history of its validations.
    """
    config = config or TrainConfig()
    device = choose_device(config.device)
    folder = None if folder is None else Path(folder)
    if folder is not None:
        make_folder(folder)
    model.to(device).train()
    rows = _prepare(model, train, "training data")
    held_out = _prepare(model, validation, "validation data")
    row_context = _prepare_context(model, context, len(rows), device)
    held_out_context = _prepare_context(model, validation_context, len(held_out), device)

    average = copy.deepcopy(model).eval().requires_grad_(False)
    # Where no step trains the energies, there is nothing of theirs to validate.
    energies = config.warmup < config.steps or config.warmup_linear
    bfloat16 = use_bfloat16(config.precision, device)
    descent = Descent(model, average, config, half=bfloat16)
    checkpoint = None if folder is None else folder / "checkpoint.safetensors"
    devices = [device] if device.type == "cuda" else []
    blocks = model.arnn.causal_blocks() if isinstance(model.arnn, CausalTransformer) else ()
    with (
        torch.random.fork_rng(devices=devices),
        compiled(blocks, enabled=config.compiled),
        Reporter(
            config.steps,
            quiet=quiet,
            tensorboard=None if folder is None else folder / "tensorboard",
            stage=stage,
        ) as reporter,
    ):
        torch.manual_seed(config.seed)
        progress = TrainingState()
        if checkpoint is not None and checkpoint.exists():
            progress = load_checkpoint(checkpoint, model, average, descent, config)
        step = DensityStep(model, descent, config, rows, row_context, bfloat16=bfloat16)

        def validate() -> Validation:
            own = validation_scores(average, held_out, held_out_context, energies=energies)
            score, proposal = (value + log_volume for value in own)
            names = "validation_log_prob", "validation_proposal_log_prob"
            return Validation(score, proposal, dict(zip(names, (score, proposal), strict=True)))

        trainer = Trainer(
            config,
            captured_on_gpu(step, device),
            Batches(len(rows), config.batch_size, config.seed, device),
            average,
            validate,
            descent.finite,
            lambda path, so_far: save_checkpoint(path, model, average, descent, config, so_far),
            reporter,
            checkpoint,
            f"try a smaller learning rate than {config.learning_rate}, more warm-up than "
            f"{config.warmup} steps, or estimator 'ranking'",
        )
        otherwise = copy.deepcopy(model.state_dict())
        try:
            trainer.train(progress)
            otherwise = average.state_dict()
        finally:
            descent.release()
            model.load_state_dict(progress.best_weights or otherwise)
            model.eval()
    return progress


def _prepare(model: AEM, values: ArrayLike, what: str) -> Float[Tensor, "N D"]:
    table = check_table(values, columns=model.columns, features=model.config.features, what=what)
    if not len(table):
        raise AemError(f"the {what} has no rows")
    if model.head.bounded:
        _refuse_outside(table, model, what)
    # Block by block: a copy of a large table in float64 is one too many.
    parts = torch.from_numpy(table).split(BLOCK)
    return torch.cat([model.standardise(part) for part in parts])


def _refuse_outside(table: NDArray[np.float64], model: AEM, what: str) -> None:
    """Rows outside a uniform proposal have no density, and no training could give them one."""
    low, high = np.array(model.config.bounds).T
    outside = (table < low) | (table > high)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise AemError(
            f"column '{model.columns[column]}' of the {what} has {table[row, column]} in row {row}, "
            f"outside the proposal's bounds {low[column]} … {high[column]}"
        )


def _prepare_context(
    model: AEM, values: NDArray[np.floating] | None, rows: int, device: torch.device
) -> Float[Tensor, "N Q"] | None:
    if values is None:
        return None
    table = check_table(values, features=model.config.context_features, what="context")
    if len(table) != rows:
        raise AemError(f"the context has {len(table)} rows, the data {rows}")
    return model.standardise_context(torch.from_numpy(table).to(device, model.dtype))
