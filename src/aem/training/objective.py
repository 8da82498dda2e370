"""The loss of an AEM, and the training step that minimises it."""

from collections.abc import Hashable
from enum import Enum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.estimates import level_penalty, log_prob_estimate
from aem.config import TrainConfig
from aem.model.aem import AEM
from aem.training.optimizer import Descent
from aem.training.schedule import averaging_decay, cosine
from aem.training.shards import differentiate
from aem.training.steps import EagerStep


class Phase(Enum):
    """What a step trains: the proposal, the energy, or both."""

    PROPOSAL = "the proposal alone"
    RISING = "both, with a rising weight on the energy"
    BOTH = "both, with equal weights"


def objective(
    model: AEM,
    z: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    config: TrainConfig,
    phase: Phase = Phase.BOTH,
    share: Float[Tensor, ""] | None = None,
) -> Float[Tensor, ""]:
    """Return the mean of −(log p̂ + log q) over the batch (paper, equation 7).

    While the proposal warms up it is −log q alone, or log p̂ has the weight `share`. A proposal
    without parameters needs no warm-up. `AEM.loss` is the same for rows in the units of the data.
    """
    conditionals = model.conditionals(z, context)
    if phase is Phase.PROPOSAL and model.head.size:
        return conditionals.proposal.log_prob_of(z).sum() / -len(z)
    log_p, log_q, log_z = log_prob_estimate(
        conditionals,
        z,
        nodes=config.nodes,
        estimator=config.estimator,
        stratified=config.stratified,
    )
    if phase is Phase.RISING:
        assert share is not None
        log_p = share * log_p
    loss = (log_p + log_q).sum() / -len(z)
    if config.levelling and conditionals.form == "relative":
        loss = loss + config.levelling * level_penalty(log_z).sum() / len(z)
    return loss


class DensityStep(EagerStep):
    """A training step of `fit`. Its phases are the warm-up, of either kind, and what follows."""

    def __init__(
        self,
        model: AEM,
        descent: Descent,
        config: TrainConfig,
        rows: Float[Tensor, "N D"],
        context: Float[Tensor, "N Q"] | None,
        *,
        bfloat16: bool = False,
    ) -> None:
        self.model, self.descent = model, descent
        self.config, self.rows, self.context = config, rows, context
        self.bfloat16 = bfloat16
        # A tensor on the device, so that a captured CUDA graph reads the value of each step.
        self.share = torch.zeros((), device=rows.device)

    def phase(self, step: int) -> Phase:
        """Return what the step trains."""
        if step >= self.config.warmup:
            return Phase.BOTH
        return Phase.RISING if self.config.warmup_linear else Phase.PROPOSAL

    def set_schedule(self, step: int) -> None:
        """Set the learning rate, the decay of the averaging and the weight of the energy."""
        if step < self.config.warmup:
            self.share.fill_(step / self.config.warmup)
        rate = cosine(step, self.config.steps, self.config.learning_rate, self.config.rise)
        self.descent.schedule(rate, averaging_decay(step, self.config.averaging))

    def run(self, indices: Int[Tensor, " B"], phase: Hashable) -> Float[Tensor, ""]:
        """Compute the loss of the rows and its gradient, and update the weights."""
        assert isinstance(phase, Phase)
        z = self.rows[indices]
        context = None if self.context is None else self.context[indices]

        def loss(some: slice) -> Float[Tensor, ""]:
            own = None if context is None else context[some]
            with torch.autocast(z.device.type, torch.bfloat16, enabled=self.bfloat16):
                mean = objective(self.model, z[some], own, self.config, phase, self.share)
            return mean * (len(z[some]) / len(z))

        if z.device.type == "cpu":
            value, gradients = differentiate(loss, len(z), self.descent.memory.parameters)
            self.descent.follow(gradients)
            return value
        value = loss(slice(None))
        self.descent(value)
        return value.detach()
