"""The density of a two-column model on a grid, for pictures.

Every point of a vertical line shares its conditional p(x2 | x1), so by quadrature a grid of n × n
points needs n + 1 normalisers, not n². The paper draws its figures with an estimate for each point.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.conditionals.normalizer import Quadrature, normalizer
from aem.errors import AemError
from aem.evaluation.importance import MEMORY, importance_scores
from aem.model.aem import AEM

PlaneBounds = tuple[tuple[float, float], tuple[float, float]]
PICTURE_TOLERANCE = 1e-2  # nats per conditional: no eye sees a hundredth


@dataclass(frozen=True)
class PlaneDensity:
    """Log densities at the centres of a grid's cells, ready to be shown as an image.

    Parameters
    ----------
    x
        centres along the first axis.
    y
        centres along the second axis.
    model
        log density of the model [y, x].
    proposal
        log density of its proposal [y, x].
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    model: NDArray[np.float64]
    proposal: NDArray[np.float64]


@torch.no_grad()
def plane_density(
    model: AEM, bounds: PlaneBounds, points: int = 256, tolerance: float = PICTURE_TOLERANCE
) -> PlaneDensity:
    """Evaluate model and proposal on a grid over the bounds, by quadrature.

    Parameters
    ----------
    model
        a model of two columns.
    bounds
        the range of each axis.
    points
        cells along each axis.
    tolerance
        largest error of a normaliser, in nats.
    """
    _check_plane(model)
    exact = model.in_double()
    device = exact.device
    x, y = _centres(bounds, points, device)
    # The conditionals of x2 depend on x1 alone: any x2 will do.
    line = torch.stack((x, torch.zeros_like(x)), -1)
    z, centre = exact.standardise(line), exact.standardisation.centre(line)[:, 1:]
    zx, zy = z[:, 0], (y - centre) / exact.standardisation.scale[1]
    rows = exact.conditionals(z).flatten()
    index = torch.arange(0, 2 * points, 2, device=device)
    log_p, log_q = [], []
    for chosen, nodes in ((index[:1], zx[None, :]), (index + 1, zy)):
        conditionals = rows.select(chosen)
        log_z = normalizer(conditionals, Quadrature(), tolerance=tolerance).log_z
        q = conditionals.proposal.log_prob(nodes.contiguous())
        log_q.append(q)
        log_p.append(q + conditionals.log_weight(nodes.contiguous()) - log_z[:, None])
    jacobian = exact.standardisation.scale.log().sum()
    return PlaneDensity(
        x.cpu().numpy(),
        y.cpu().numpy(),
        (log_p[0].T + log_p[1] - jacobian).T.cpu().numpy(),
        (log_q[0].T + log_q[1] - jacobian).T.cpu().numpy(),
    )


def estimated_density(
    model: AEM, bounds: PlaneBounds, points: int = 256, *, samples: int, memory: int = MEMORY
) -> PlaneDensity:
    """Evaluate model and proposal on a grid by importance sampling, as in the paper.

    Parameters
    ----------
    model
        a model of two columns.
    bounds
        the range of each axis.
    points
        cells along each axis.
    samples
        draws of the proposal per conditional of each point.
    memory
        bytes that may be held at a time.
    """
    _check_plane(model)
    x, y = _centres(bounds, points, model.device)
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1).reshape(-1, 2)
    scores = importance_scores(model, grid, samples=samples, memory=memory)
    return PlaneDensity(
        x.cpu().numpy(),
        y.cpu().numpy(),
        scores.log_prob.sum(-1).reshape(points, points).cpu().numpy(),
        scores.log_proposal.sum(-1).reshape(points, points).cpu().numpy(),
    )


def _check_plane(model: AEM) -> None:
    if model.config.features != 2:
        raise AemError(f"a plane needs two columns, the model has {model.config.features}")


def _centres(
    bounds: PlaneBounds, points: int, device: torch.device
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the centres of the grid's cells along each axis."""
    centres = (torch.arange(points, dtype=torch.float64, device=device) + 0.5) / points
    x, y = (low + (high - low) * centres for low, high in bounds)
    return x, y
