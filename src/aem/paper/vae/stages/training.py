"""Training of encoder and decoder: binary images in, the best averaged weights out."""

import copy
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.devices import choose_device, cudnn, use_bfloat16
from aem.base.files import make_folder
from aem.base.randomness import seeded
from aem.paper.vae.binarise import fixed_binarisation
from aem.paper.vae.config import AugmentConfig, StageConfig
from aem.paper.vae.images import Images
from aem.paper.vae.stages.latent import LatentModel
from aem.paper.vae.stages.optimiser import make_optimiser
from aem.paper.vae.stages.steps import StageStep
from aem.training.batches import Batches
from aem.training.checkpoint import TrainingState, load_checkpoint, save_checkpoint
from aem.training.compiled import compiled
from aem.training.display import Reporter
from aem.training.steps import captured_on_gpu
from aem.training.trainer import Trainer, Validation, all_finite
from aem.vae.bounds import draw_posterior, elbo, importance_bound
from aem.vae.priors import log_prior

VALIDATION_SAMPLES = 8
VALIDATION_SEED = 1  # of the validation images' binarisation


@torch.no_grad()
def validate(
    model: LatentModel, x: Float[Tensor, "V 1 28 28"], config: StageConfig
) -> dict[str, float]:
    """Return the objective, the ELBO and the bound of images, with the same noise every time."""
    generator = torch.Generator(x.device).manual_seed(0)
    draws = draw_posterior(model.vae, x, max(config.samples, VALIDATION_SAMPLES), generator)
    blocks = draws.z.split(512)
    log_p = torch.cat([log_prior(model.prior, z) for z in blocks])
    log_w = draws.log_weights(log_p)
    tempered = log_w + (config.beta - 1) * (log_p - draws.log_posterior).double()
    score = elbo(tempered) if config.samples == 1 else importance_bound(tempered)
    return {
        "validation_score": float(score.mean()),
        "validation_elbo": float(elbo(log_w).mean()),
        "validation_bound": float(importance_bound(log_w).mean()),
        "validation_kl": float(draws.kl(log_p).mean()),
    }


def train_stage(
    model: LatentModel,
    images: Images,
    config: StageConfig,
    *,
    augment: AugmentConfig | None = None,
    folder: Path | None = None,
    quiet: bool = False,
) -> TrainingState:
    """Train a model in place, and leave the best averaged weights in it.

    With a folder the run writes checkpoints there and, started again with the same settings, goes on
    where it stopped; on a CPU it then ends with the same bits as a run that never stopped.
    """
    device = choose_device(config.device)
    if folder is not None:
        make_folder(folder)
    images = images.to(device)
    held_out = fixed_binarisation(images.validation, VALIDATION_SEED)[:, None]
    model.to(device).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    average, vae = copy.deepcopy(model).eval().requires_grad_(False), model.vae
    optimiser = make_optimiser(model, config, device)
    checkpoint = None if folder is None else folder / "checkpoint.safetensors"
    with (
        seeded(config.seed, device),
        cudnn("benchmark", True),  # all steps have the same shapes, so trying algorithms pays
        compiled((vae.encoder.blocks, vae.decoder.blocks), enabled=config.compiled),
        Reporter(
            config.steps,
            quiet=quiet,
            tensorboard=None if folder is None else folder / "tensorboard",
            beside="ELBO",
        ) as reporter,
    ):
        progress = TrainingState(step=config.start)
        if checkpoint is not None and checkpoint.exists():
            progress = load_checkpoint(checkpoint, model, average, optimiser, config)
            _align(optimiser)
        step = StageStep(
            model,
            average,
            optimiser,
            config,
            images.train,
            augment=augment,
            bfloat16=use_bfloat16(config.precision, device),
        )

        def judge() -> Validation:
            found = validate(average, held_out, config)
            return Validation(found["validation_score"], found["validation_elbo"], found)

        Trainer(
            config,
            captured_on_gpu(step, device),
            Batches(len(images.train), config.batch_size, config.seed, device),
            average,
            judge,
            lambda: all_finite(step.parameters),
            lambda path, so_far: save_checkpoint(path, model, average, optimiser, config, so_far),
            reporter,
            checkpoint,
            f"try a smaller learning rate than {config.learning_rate}, or clipped gradients "
            "(clip = 5)",
        ).train(progress)
    model.load_state_dict(progress.best_weights or average.state_dict())
    model.eval()
    return progress


def _align(optimiser: torch.optim.Optimizer) -> None:
    """Give the moments the memory layout of their parameters, which fused Adam requires."""
    for parameter, state in optimiser.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                state[name] = torch.empty_like(parameter).copy_(value)
