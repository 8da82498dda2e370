"""Autoregressive energy machines: densities of tables that are normalised and know their error."""

from aem.config import ModelConfig, TrainConfig
from aem.distribution import AEMDistribution
from aem.errors import AemError
from aem.model import AEM

__all__ = ["AEM", "AEMDistribution", "AemError", "ModelConfig", "TrainConfig"]
