"""Autoregressive energy machines: densities of tables that are normalised and know their error."""

from typing import TYPE_CHECKING, Any

from aem.errors import AemError

if TYPE_CHECKING:
    from aem.config import ModelConfig, TrainConfig
    from aem.distribution import AEMDistribution
    from aem.estimators import AEMDensity, AEMOutlierDetector
    from aem.model import AEM
    from aem.tablemodel import TableModel
    from aem.threads import get_threads, set_threads

__all__ = [
    "AEM",
    "AEMDensity",
    "AEMDistribution",
    "AEMOutlierDetector",
    "AemError",
    "ModelConfig",
    "TableModel",
    "TrainConfig",
    "get_threads",
    "set_threads",
]

# torch and scikit-learn take a while to import; the program must be able to say that it was stopped.
_LAZY = {
    "AEM": "aem.model",
    "AEMDensity": "aem.estimators",
    "AEMDistribution": "aem.distribution",
    "AEMOutlierDetector": "aem.estimators",
    "ModelConfig": "aem.config",
    "TableModel": "aem.tablemodel",
    "TrainConfig": "aem.config",
    "get_threads": "aem.threads",
    "set_threads": "aem.threads",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'aem' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
