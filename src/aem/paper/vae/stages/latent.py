"""The module that a stage trains: encoder, decoder and, in a joint stage, the prior."""

from dataclasses import dataclass

from torch import nn

from aem.config import ModelConfig
from aem.model.aem import AEM
from aem.paper.vae.config import NetworkConfig
from aem.paper.vae.networks import ConvolutionalVae


@dataclass(frozen=True)
class LatentConfig:
    """What decides the shapes of the parts of a latent model.

    Parameters
    ----------
    vae
        sizes of encoder and decoder.
    prior
        sizes of the learnt prior; None for the standard normal.
    """

    vae: NetworkConfig
    prior: ModelConfig | None


class LatentModel(nn.Module):
    """A VAE with the prior that it is trained with.

    Parameters
    ----------
    vae
        encoder and decoder.
    prior
        an AEM of the latents; None for the standard normal.
    """

    def __init__(self, vae: ConvolutionalVae, prior: AEM | None = None) -> None:
        super().__init__()
        self.vae, self.prior = vae, prior
        self.config = LatentConfig(vae.config, None if prior is None else prior.config)
