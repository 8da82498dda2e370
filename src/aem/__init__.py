"""Autoregressive energy machines: densities of tables that are normalised and know their error."""

from typing import TYPE_CHECKING, Any

from aem.config import ModelConfig, TrainConfig
from aem.distribution import AEMDistribution
from aem.errors import AemError
from aem.model import AEM

if TYPE_CHECKING:
    from aem.estimators import AEMDensity, AEMOutlierDetector
    from aem.tablemodel import TableModel

__all__ = [
    "AEM",
    "AEMDensity",
    "AEMDistribution",
    "AEMOutlierDetector",
    "AemError",
    "ModelConfig",
    "TableModel",
    "TrainConfig",
]

# scikit-learn takes a while to import, and most of the library does without.
_LAZY = {
    "AEMDensity": "aem.estimators",
    "AEMOutlierDetector": "aem.estimators",
    "TableModel": "aem.tablemodel",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'aem' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
