"""Three other methods for small tables: neural spline flow, Gaussian mixture, kernel density.

Each is fitted on the training rows and chosen on the validation rows, and returns log densities of
any rows in their original units.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aem.data.splits import Table, TableSplits
from aem.errors import AemError
from benchmarks.accuracy.flows import descend, scores

LogProb = Callable[[Table], NDArray[np.float64]]

COMPONENTS = (1, 2, 4, 8, 16, 32, 64)
RIDGES = (1e-5, 1e-3, 1e-2)
BANDWIDTH_ROWS = 2_000  # validation rows that choose it; more choose the same
BANDWIDTHS = tuple(float(h) for h in np.geomspace(0.02, 2.0, 25))


def gaussian_mixture(splits: TableSplits, seed: int = 0) -> tuple[LogProb, dict[str, Any]]:
    """Fit a mixture with full covariances; validation rows choose its components and ridge."""
    from sklearn.mixture import GaussianMixture

    best, best_score, chosen = None, -math.inf, {}
    for components in COMPONENTS:
        for ridge in RIDGES:
            mixture = GaussianMixture(components, reg_covar=ridge, random_state=seed, max_iter=200)
            score = mixture.fit(splits.train.astype(np.float64)).score(splits.validation)
            if score > best_score:
                best, best_score = mixture, score
                chosen = {"components": components, "ridge": ridge}
    if best is None:
        raise AemError("no Gaussian mixture has a finite validation score")
    return lambda x: best.score_samples(x.astype(np.float64)), chosen


def kernel_density(splits: TableSplits) -> tuple[LogProb, dict[str, Any]]:
    """Fit Gaussian kernels in standardised columns, whose width is chosen on validation rows."""
    train = torch.from_numpy(splits.train).double()
    scale = train.std(0)
    centres = train / scale

    def squared_distances(x: Table) -> Tensor:
        return torch.cdist(torch.from_numpy(x).double() / scale, centres).square()

    def log_prob(distances: Tensor, h: float) -> Tensor:
        d = train.shape[1]
        constant = math.log(len(train)) + d * (math.log(h) + 0.5 * math.log(2 * math.pi))
        return (-0.5 * distances / h**2).logsumexp(-1) - constant - scale.log().sum()

    def scored(x: Table, h: float) -> NDArray[np.float64]:
        blocks = np.array_split(x, max(len(x) // 1000, 1))
        return np.concatenate([log_prob(squared_distances(b), h).numpy() for b in blocks])

    scores = np.zeros(len(BANDWIDTHS))
    rows = splits.validation[:BANDWIDTH_ROWS]
    for block in np.array_split(rows, max(len(rows) // 1000, 1)):
        distances = squared_distances(block)
        scores += [float(log_prob(distances, h).sum()) for h in BANDWIDTHS]
    h = BANDWIDTHS[int(scores.argmax())]
    return lambda x: scored(x, h), {"bandwidth": h}


def spline_flow(
    splits: TableSplits,
    seed: int = 0,
    *,
    epochs: int = 300,
    patience: int = 20,
    batch: int = 256,
    learning_rate: float = 1e-3,
    report: Callable[[str], None] = print,
) -> tuple[LogProb, dict[str, Any]]:
    """Train zuko's NSF, five transforms of 128 × 128, and keep the best epoch on validation rows."""
    import zuko

    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    flow = zuko.flows.NSF(splits.train.shape[1], transforms=5, hidden_features=(128, 128))
    flow = flow.to(device)
    optimiser = torch.optim.Adam(flow.parameters(), lr=learning_rate)
    train = torch.from_numpy(splits.train).to(device)
    held_out = torch.from_numpy(splits.validation).to(device)
    best_score, best_epoch, best_state = -math.inf, 0, copy.deepcopy(flow.state_dict())
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(len(train), device=device).split(batch):
            descend(flow, optimiser, train[rows])
        with torch.no_grad():
            score = float(flow().log_prob(held_out).double().mean())
        if score > best_score:
            best_score, best_epoch = score, epoch
            best_state = copy.deepcopy(flow.state_dict())
        if epoch % 10 == 0:
            report(f"NSF, epoch {epoch}: validation {score:.4f}, best {best_score:.4f}")
        if epoch - best_epoch >= patience:
            break
    flow.load_state_dict(best_state)
    return lambda x: scores(flow, x), {
        "transforms": 5,
        "hidden": [128, 128],
        "learning_rate": learning_rate,
        "batch": batch,
        "best_epoch": best_epoch,
        "stopped_after": epoch,
    }
