"""The paper's convolutional VAE: residual encoder and decoder with Bernoulli pixels."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from aem.paper.vae.blocks import ACTIVATIONS, ConvBlock, Stack, down, same, up
from aem.paper.vae.config import NetworkConfig
from aem.vae.posterior import GaussianPosterior

SIZES = (28, 14, 7, 4)  # of the feature maps, from the image to the innermost block
LEAST_LOG_SCALE, MOST_LOG_SCALE = -10.0, 5.0  # beyond these a scale overflows before it is useful


class Encoder(nn.Module):
    """The encoder: from an image to means and log scales of its latents.

    Parameters
    ----------
    config
        sizes of the networks.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        activation, dropout = ACTIVATIONS[config.activation], config.dropout
        channels = config.channels
        self.activation = activation
        self.project = nn.Conv2d(1, channels, 1)
        layers: list[ConvBlock] = []
        for _ in SIZES[1:]:
            layers.extend(same(channels, activation, dropout) for _ in range(config.blocks))
            layers.append(down(channels, activation, dropout))
            channels *= 2
        self.blocks = Stack(*layers)
        self.regress = nn.Linear(channels * SIZES[-1] ** 2, 2 * config.latents)

    def forward(self, x: Float[Tensor, "B 1 28 28"]) -> GaussianPosterior:
        """Return the posterior of each image, in float32 whatever the convolutions compute in.

        Parameters
        ----------
        x
            images of zeros and ones.
        """
        h: Tensor = self.blocks(self.project(x))
        outputs: Tensor = self.regress(self.activation(h).flatten(1))
        mean, log_variance = outputs.float().chunk(2, -1)
        log_scale = (0.5 * log_variance).clamp(LEAST_LOG_SCALE, MOST_LOG_SCALE)
        return GaussianPosterior(mean, log_scale.exp())


class Decoder(nn.Module):
    """The decoder: from latents to Bernoulli logits of the pixels.

    Parameters
    ----------
    config
        sizes of the networks.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        activation, dropout = ACTIVATIONS[config.activation], config.dropout
        channels = config.channels * 2 ** (len(SIZES) - 1)
        self.activation = activation
        self.innermost = (channels, SIZES[-1], SIZES[-1])
        self.project = nn.Linear(config.latents, channels * SIZES[-1] ** 2)
        layers: list[ConvBlock] = []
        for size, target in zip(SIZES[:0:-1], SIZES[-2::-1], strict=True):
            before = config.blocks if config.decoder == "before" else 0
            layers.extend(same(channels, activation, dropout) for _ in range(before))
            layers.append(up(channels, size, target, activation, dropout))
            channels //= 2
            after = config.blocks - before
            layers.extend(same(channels, activation, dropout) for _ in range(after))
        self.blocks = Stack(*layers)
        self.pixels = nn.Conv2d(channels, 1, 1)

    def forward(self, z: Float[Tensor, "B L"]) -> Float[Tensor, "B 1 28 28"]:
        """Return logits of the pixels, in float32 whatever the convolutions compute in.

        Parameters
        ----------
        z
            one latent vector per image.
        """
        h: Tensor = self.project(z).unflatten(1, self.innermost)
        h = self.blocks(h.contiguous(memory_format=torch.channels_last))
        logits: Tensor = self.pixels(self.activation(h))
        return logits.float()


class ConvolutionalVae(nn.Module):
    """The paper's encoder and decoder together; the prior is a matter of its own.

    Parameters
    ----------
    config
        sizes of the networks: channels, blocks, latents.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder = Encoder(config), Decoder(config)

    def encode(self, x: Float[Tensor, "B 1 28 28"]) -> GaussianPosterior:
        """Return q(z | x) of binary images.

        Parameters
        ----------
        x
            images of zeros and ones.
        """
        posterior: GaussianPosterior = self.encoder(x)
        return posterior

    def logits(self, z: Float[Tensor, "B L"]) -> Float[Tensor, "B 1 28 28"]:
        """Return the logits of p(x = 1 | z), pixel by pixel.

        Parameters
        ----------
        z
            one latent vector per image.
        """
        logits: Tensor = self.decoder(z)
        return logits

    def log_likelihood(
        self, x: Float[Tensor, "B 1 28 28"], z: Float[Tensor, "B K L"]
    ) -> Float[Tensor, "B K"]:
        """Return log p(x | z) of each image under each of its K latents.

        Parameters
        ----------
        x
            images of zeros and ones.
        z
            K latent vectors per image.
        """
        logits = self.logits(z.flatten(0, 1)).flatten(1).unflatten(0, z.shape[:2])
        terms: Tensor = x.flatten(1)[:, None] * logits - F.softplus(logits)
        return terms.sum(-1)
