"""A small random model of every kind: energies, proposals, networks and maps."""

from typing import Any

import torch
from torch import Tensor

from aem import AEM
from aem.model.transforms.whitening import Whitening
from tests.support.rough import rough_model

MODELS: dict[str, dict[str, Any]] = {
    "relative": {},
    "literal": {"energy": "literal"},
    "uniform": {"proposal": "uniform"},
    "literal uniform": {"energy": "literal", "proposal": "uniform"},
    "student_t": {"proposal": "student_t"},
    "laplace": {"proposal": "laplace"},
    "anchored": {"proposal": "anchored"},
    "whitened": {"whiten": True},
    "transformer": {"network": "transformer"},
    "made, tanh": {"network": "made", "activation": "elu", "energy_activation": "tanh"},
    "bare past": {"fourier_past": False},
}


def model_of(name: str, features: int = 2, context: int = 0) -> AEM:
    """A random model with Fourier features of moderate frequency; a whitened one mixes its columns."""
    settings = {"energy": "relative", **MODELS[name]}
    model = rough_model(features=features, context=context, size=1.0, top=6.0, **settings)
    if name == "whitened":
        slopes = torch.tril(torch.full((features, features), 0.4), -1)
        own = model.standardisation
        model.standardisation = Whitening(own.shift, own.scale, slopes)
    return model


def context_of(model: AEM, rows: int) -> Tensor | None:
    size = model.config.context_features
    seeded = torch.Generator().manual_seed(5)
    return torch.randn(rows, size, dtype=torch.float64, generator=seeded) if size else None
