"""The loss of an AEM, and a step down its gradient."""

from collections.abc import Hashable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.estimates import log_prob_estimate
from aem.config import TrainConfig
from aem.model.aem import AEM
from aem.training.optimizer import Descent
from aem.training.schedule import averaging_decay, cosine
from aem.training.shards import differentiate
from aem.training.steps import EagerStep


def objective(
    model: AEM,
    z: Float[Tensor, "B D"],
    context: Float[Tensor, "B Q"] | None,
    config: TrainConfig,
    *,
    proposal_only: bool,
) -> Float[Tensor, ""]:
    """Mean of −(log p̂ + log q) over the batch (paper, equation 7); −log q alone in warm-up.

    A proposal without parameters has nothing to warm up.
    """
    conditionals = model.conditionals(z, context)
    if proposal_only and model.head.size:
        return conditionals.proposal.log_prob(z[..., None]).sum() / -len(z)
    log_p, log_q = log_prob_estimate(
        conditionals,
        z,
        nodes=config.nodes,
        estimator=config.estimator,
        stratified=config.stratified,
    )
    return (log_p + log_q).sum() / -len(z)


class DensityStep(EagerStep):
    """One step of `fit`; its phases are the proposal's warm-up and all that follows."""

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

    def phase(self, step: int) -> bool:
        """Whether the proposal trains alone."""
        return step < self.config.warmup

    def set_schedule(self, step: int) -> None:
        """The learning rate and the averaging's decay."""
        rate = cosine(step, self.config.steps, self.config.learning_rate, self.config.rise)
        self.descent.schedule(rate, averaging_decay(step, self.config.averaging))

    def run(self, indices: Int[Tensor, " B"], phase: Hashable) -> Float[Tensor, ""]:
        """Rows, loss, gradient, weights."""
        z = self.rows[indices]
        context = None if self.context is None else self.context[indices]

        def loss(some: slice) -> Float[Tensor, ""]:
            own = None if context is None else context[some]
            with torch.autocast(z.device.type, torch.bfloat16, enabled=self.bfloat16):
                mean = objective(self.model, z[some], own, self.config, proposal_only=bool(phase))
            return mean * (len(z[some]) / len(z))

        if z.device.type == "cpu":
            value, gradients = differentiate(loss, len(z), self.descent.memory.parameters)
            self.descent.follow(gradients)
            return value
        value = loss(slice(None))
        self.descent(value)
        return value.detach()
