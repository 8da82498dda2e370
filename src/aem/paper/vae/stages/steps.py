"""One step of a stage: fresh binary images, bound, gradient, Adam, average.

Images stay on the device; a step is told only which of them to take.
"""

from collections.abc import Hashable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from aem.paper.vae.binarise import binarise, grey_levels
from aem.paper.vae.config import AugmentConfig, StageConfig
from aem.paper.vae.stages.latent import LatentModel
from aem.paper.vae.stages.objective import negative_bound
from aem.paper.vae.stages.optimiser import descend, set_rate, update_average
from aem.paper.vae.stages.warp import warp
from aem.training.schedule import averaging_decay, cosine
from aem.training.steps import EagerStep


class StagePhase(NamedTuple):
    """The kind of a training step; a CUDA graph is captured for each."""

    prior_only: bool
    warped: bool


def phase_of(step: int, config: StageConfig) -> StagePhase:
    """Return the phase that a step belongs to.

    Parameters
    ----------
    step
        number of the step, from zero.
    config
        how long the phases are.
    """
    return StagePhase(step < config.prior_warmup, strength_of(step, config) > 0)


def strength_of(step: int, config: StageConfig) -> float:
    """Return the strength of data augmentation: constant at first, then linear to its final value.

    Parameters
    ----------
    step
        number of the step, from zero.
    config
        the strengths at first and at the end.
    """
    until = config.augment_until * config.steps
    share = min(max(2 * step / until - 1, 0.0), 1.0)
    return (1 - share) * config.augment + share * config.augment_end


class StageStep(EagerStep):
    """One training step of encoder, decoder and prior.

    Parameters
    ----------
    model
        what is trained.
    average
        averages of its weights.
    optimiser
        moves the weights.
    config
        how the stage is trained.
    images
        grey training images, on the device.
    augment
        by how much images are deformed at a strength of one.
    bfloat16
        whether products are computed in bfloat16.
    """

    def __init__(
        self,
        model: LatentModel,
        average: LatentModel,
        optimiser: torch.optim.Optimizer,
        config: StageConfig,
        images: UInt8[Tensor, "N 28 28"],
        *,
        augment: AugmentConfig | None = None,
        bfloat16: bool = False,
    ) -> None:
        self.augment = AugmentConfig() if augment is None else augment
        self.model, self.optimiser, self.config = model, optimiser, config
        self.images, self.bfloat16 = images, bfloat16
        self.parameters = list(model.parameters())
        self.averages = [p.detach() for p in average.parameters()]
        # On the device, so that a captured graph sees new values without recapture.
        self.keep, self.beta, self.strength = torch.zeros(3, device=images.device).unbind()

    def phase(self, step: int) -> StagePhase:
        """Return the phase of a step."""
        return phase_of(step, self.config)

    def set_schedule(self, step: int) -> None:
        """Store the numbers that depend on the step in tensors that `run` reads."""
        config = self.config
        set_rate(self.optimiser, cosine(step, config.steps, config.learning_rate))
        self.keep.fill_(averaging_decay(step, config.averaging))
        self.beta.fill_(config.beta * min((step + 1) / (config.beta_warmup + 1), 1.0))
        self.strength.fill_(strength_of(step, config))

    def batch(self, indices: Int[Tensor, " B"], *, warped: bool) -> Float[Tensor, "B 1 28 28"]:
        """Return the images of a step, binarised afresh.

        Parameters
        ----------
        indices
            numbers of the images.
        warped
            whether they are deformed.
        """
        grey = grey_levels(self.images[indices][:, None])
        if warped:
            grey = warp(grey, self.augment, self.strength)
        return binarise(grey)

    def run(self, indices: Int[Tensor, " B"], phase: Hashable) -> Float[Tensor, ""]:
        """Compute the bound of binarised images and its gradient, and update the weights."""
        assert isinstance(phase, StagePhase)
        x = self.batch(indices, warped=phase.warped)
        with torch.autocast(self.images.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss = negative_bound(
                self.model.vae,
                self.model.prior,
                x,
                samples=self.config.samples,
                beta=self.beta,
                prior_only=phase.prior_only,
            )
        descend(loss, self.optimiser, self.parameters, self.config.clip)
        update_average(self.averages, self.parameters, self.keep)
        return loss.detach()
