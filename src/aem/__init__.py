"""Autoregressive energy machines: densities of tables that are normalised and know their error."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aem.errors import AccuracyWarning, AemError

if TYPE_CHECKING:
    from aem.base.threads import get_threads, set_threads
    from aem.conditionals.normalizer import Quadrature
    from aem.config import ModelConfig, TrainConfig
    from aem.model.aem import AEM
    from aem.model.distribution import AEMDistribution
    from aem.model.files import load_model, save_model
    from aem.nn.made import MADE
    from aem.nn.resmade import ResMADE
    from aem.tables.estimators import AEMDensity, AEMOutlierDetector
    from aem.tables.model import TableModel
    from aem.training.loop import fit

__version__ = "0.2.0"

__all__ = [
    "AEM",
    "MADE",
    "AEMDensity",
    "AEMDistribution",
    "AEMOutlierDetector",
    "AccuracyWarning",
    "AemError",
    "ModelConfig",
    "Quadrature",
    "ResMADE",
    "TableModel",
    "TrainConfig",
    "__version__",
    "fit",
    "get_threads",
    "load_model",
    "save_model",
    "set_threads",
]

# torch and scikit-learn take a while to import; the program must be able to say that it was stopped.
_LAZY = {
    "AEM": "aem.model.aem",
    "AEMDensity": "aem.tables.estimators",
    "AEMDistribution": "aem.model.distribution",
    "AEMOutlierDetector": "aem.tables.estimators",
    "MADE": "aem.nn.made",
    "ModelConfig": "aem.config",
    "Quadrature": "aem.conditionals.normalizer",
    "ResMADE": "aem.nn.resmade",
    "TableModel": "aem.tables.model",
    "TrainConfig": "aem.config",
    "fit": "aem.training.loop",
    "get_threads": "aem.base.threads",
    "load_model": "aem.model.files",
    "save_model": "aem.model.files",
    "set_threads": "aem.base.threads",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'aem' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
