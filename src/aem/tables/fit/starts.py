"""Models that training starts from: networks that change nothing yet, on a mixture of all columns.

From a mixture of several Gaussians the networks learn what it misses. From copies of a single one they
make mixtures of its conditionals as they like. The first is better where columns are few, the second
where they are many and a mixture overfits.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aem.base.randomness import seeded
from aem.config import ModelConfig
from aem.model.aem import AEM
from aem.model.mixture import JointMixture
from aem.model.transforms.normal_scores import crowding
from aem.nn.features import LOWEST_FREQUENCY, supported_frequency

Array = NDArray[np.float64]

MOST_CROWDING = 32.0
COPIES = 16  # of a single Gaussian, for the network to make a mixture of
SCALE_OF_COPIES = 0.5  # of the Gaussian's, at first


def anchored_model(
    joint: JointMixture,
    config: ModelConfig,
    train: Array,
    columns: Sequence[str],
    seed: int,
    *,
    copies: int = 1,
) -> AEM:
    """Make a model whose density is that of a mixture, or of a single Gaussian in several copies.

    Parameters
    ----------
    joint
        the mixture, of standardised columns.
    config
        sizes of the networks.
    train
        training rows, as the model reads them.
    columns
        their names.
    seed
        of the networks' weights.
    copies
        how often each component is repeated; more than one lie side by side, and the weights of
        components then do not depend on the columns before.
    """
    joint = joint if copies == 1 else joint.repeated(copies)
    components = len(joint.log_weights)
    with seeded(seed, torch.device("cpu")):
        model = AEM.for_data(replace(config, components=components), train, columns=columns)
    model.head.anchor(joint.log_weights, joint.means, joint.factors, memory=copies == 1)
    z = (train - train.mean(0)) / train.std(0)
    cells = np.array([step > 0 for _, step in config.lattice] or [False] * z.shape[1])
    model.embedding.frequencies.copy_(ladders(z, cells, config.frequencies))
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


def ladders(z: Array, cells: NDArray[np.bool_], count: int) -> Tensor:
    """Choose the frequencies [D, F] of columns: as high as the rows support, and no higher.

    Where most rows crowd into a small part of a column's range, as with a long tail, they support
    higher ones; not so in a discrete column, where they would tell nothing but places in its cells. A
    comb of rounded values is not for a practitioner's density to find: it would call every row that
    was rounded otherwise impossible. Where values repeat the column is discrete anyway.

    Parameters
    ----------
    z
        standardised rows [B, D].
    cells
        which columns are discrete [D].
    count
        F, frequencies per column.
    """
    times = crowding(z).clip(1.0, MOST_CROWDING)
    top = np.where(cells, 1.0, times) * supported_frequency(len(z))
    return torch.from_numpy(np.geomspace(LOWEST_FREQUENCY, top, count).T).float()
