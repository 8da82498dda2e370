"""A proposal anchored to a Gaussian mixture of all columns.

Given x_<d, the conditional of the joint mixture is again a mixture of K Gaussians. Its weights are
those of the components given x_<d, and its means are linear in x_<d. A network changes logits, means
and log scales by bounded amounts, which are zero at first. Training therefore starts at the joint
mixture and keeps its tails, because the last, wide component is never changed.

With many columns, x_<d determines the component almost surely, and where it picks the wrong one the
network cannot correct it. An anchor may therefore be without memory: its components have the same
weights for all x_<d, and apart from the linear means the network learns the dependence, with wider
bounds.
"""

import math
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from aem.conditionals.proposals.base import Head
from aem.conditionals.proposals.gaussian import GaussianMixture
from aem.config import ModelConfig
from aem.nn.features import REACH
from aem.nn.rowwise import FEW, blockwise, padded

Array = NDArray[np.float64]

# Largest changes of a component by the network: of its logit in nats, of its mean in standard
# deviations, and of the logarithm of its scale.
MOST_LOGIT, MOST_SHIFT, MOST_STRETCH = 6.0, 4.0, 2.0
WIDER = 2.0  # factor of the last two without memory


class AnchoredHead(Head):
    """Turns φ [*B, 3K] and earlier columns into a mixture near the conditional of the joint mixture.

    A fresh head is anchored to standard normal distributions, until `anchor` names a mixture.

    Parameters
    ----------
    features
        D, the number of columns.
    components
        K of the joint mixture, its wide last component included.
    min_scale
        the smallest scale a component may have, in standardised units.
    """

    silent = True
    log_weights: Tensor
    means: Tensor
    unfactors: Tensor
    memory: Tensor

    def __init__(self, features: int, components: int, min_scale: float) -> None:
        super().__init__()
        self.components, self.min_scale = components, min_scale
        self.size, self.terms = 3 * components, components
        self.register_buffer("log_weights", torch.full((components,), -math.log(components)))
        self.register_buffer("means", torch.zeros(components, features))
        # Inverse Cholesky factors: A (x − μ) is white.
        self.register_buffer("unfactors", torch.eye(features).repeat(components, 1, 1))
        self.register_buffer("memory", torch.ones(()))  # one, or zero without

    @classmethod
    def from_config(
        cls, config: ModelConfig, shift: Float[Tensor, " D"], scale: Float[Tensor, " D"]
    ) -> Self:
        """Make a head anchored to standard normal distributions, until `anchor` names a mixture."""
        return cls(config.features, config.components, config.min_scale)

    def anchor(
        self, log_weights: Array, means: Array, factors: Array, *, memory: bool = True
    ) -> None:
        """Start from a joint mixture of K Gaussians over all standardised columns."""
        self.memory.fill_(float(memory))
        self.log_weights.copy_(torch.from_numpy(log_weights))
        self.means.copy_(torch.from_numpy(means))
        self.unfactors.copy_(torch.linalg.inv(torch.from_numpy(factors)).tril())

    def anchored_to(self) -> tuple[Array, Array, Array]:
        """Return the joint mixture that the head is anchored to."""
        parts = (self.log_weights, self.means, torch.linalg.inv(self.unfactors.double()).tril())
        log_weights, means, factors = (part.double().cpu().numpy() for part in parts)
        return log_weights, means, factors

    def initial_bias(self) -> Float[Tensor, " P"]:
        """Return zeros, which leave the anchor unchanged."""
        return torch.zeros(self.size)

    def forward(
        self, phi: Float[Tensor, "*B P"], feature: int | None, past: Float[Tensor, "*A N"]
    ) -> GaussianMixture:
        """Build the mixtures of all D features, or of one given the columns before it."""
        phi = phi.to(torch.promote_types(phi.dtype, torch.float32))
        past = past.to(phi.dtype).clamp(-REACH, REACH)
        if feature is None:
            logits, locs, scales = self._all(past)
        else:
            logits, locs, scales = self._one(past, feature)
        logit, shift, stretch = phi.split(self.components, -1)
        free = torch.ones(self.components, dtype=phi.dtype, device=phi.device)
        free[-1] = 0
        wider = self.memory + WIDER * (1 - self.memory)
        return GaussianMixture(
            logits + free * _bounded(logit, MOST_LOGIT),
            locs + scales * free * _bounded(shift, wider * MOST_SHIFT),
            (scales * (free * _bounded(stretch, wider * MOST_STRETCH)).exp()).clamp_min(
                self.min_scale
            ),
        )

    def _all(self, z: Float[Tensor, "*B D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Logits and means [*B, D, K] and scales [D, K] of every conditional."""
        from_mean = z[..., None, :] - self.means
        diagonal = self.unfactors.diagonal(dim1=-2, dim2=-1)
        by_past = _products(self.unfactors.tril(-1), from_mean)
        white = by_past + diagonal * from_mean
        terms = diagonal.log() - 0.5 * white.square()
        # What each column says about the component counts for the columns after it.
        logits = self.log_weights[:, None] + self.memory * (terms.cumsum(-1) - terms)
        locs = self.means - by_past / diagonal
        return logits.transpose(-1, -2), locs.transpose(-1, -2), 1 / diagonal.T

    def _one(self, past: Float[Tensor, "*B N"], feature: int) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, means and scales [*B, K] of one feature, from the columns before it."""
        from_mean = past[..., None, :feature] - self.means[:, :feature]
        factors = self.unfactors[:, :feature, :feature]
        white = _products(factors, from_mean)
        known = factors.diagonal(dim1=-2, dim2=-1).log() - 0.5 * white.square()
        own = self.unfactors[:, feature, feature]
        by_past = (self.unfactors[:, feature, :feature] * from_mean).sum(-1)
        logits = self.log_weights + self.memory * known.sum(-1)
        return logits, self.means[:, feature] - by_past / own, 1 / own

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        state_dict.setdefault(prefix + "memory", torch.ones(()))  # as of files that do not say
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _products(
    matrices: Float[Tensor, "K I J"], vectors: Float[Tensor, "*B K J"]
) -> Float[Tensor, "*B K I"]:
    """Return the product of each component's matrix and its vector."""
    more = padded(vectors.shape[-1], vectors) - vectors.shape[-1]  # so that all are aligned alike
    wide, flat = F.pad(matrices, (0, more)), F.pad(vectors.flatten(0, -3), (0, more))

    def some(vectors: Tensor) -> Tensor:
        return torch.einsum("kij,bkj->bki", wide, vectors)

    return blockwise(some, FEW, flat).view(*vectors.shape[:-1], matrices.shape[1])


def _bounded(x: Tensor, most: float | Tensor) -> Tensor:
    return most * torch.tanh(x / most)
