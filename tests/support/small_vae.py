"""Small images and networks: enough to be wrong about, small enough for one slow core."""

import pytest
import torch

from aem.paper.vae.config import NetworkConfig
from aem.paper.vae.images import Images
from aem.paper.vae.networks import ConvolutionalVae


def blobs(count: int, seed: int) -> torch.Tensor:
    """Grey images of one soft spot each, somewhere."""
    generator = torch.Generator().manual_seed(seed)
    centres = 8 + 12 * torch.rand(count, 2, 1, 1, generator=generator)
    row, column = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    squared = (row - centres[:, 0]).square() + (column - centres[:, 1]).square()
    return (255 * torch.exp(-squared / 18)).to(torch.uint8)


@pytest.fixture
def images() -> Images:
    return Images(blobs(40, 0), blobs(12, 1), blobs(64, 2))


@pytest.fixture
def network() -> NetworkConfig:
    return NetworkConfig(latents=3, channels=2)


@pytest.fixture
def vae(network: NetworkConfig) -> ConvolutionalVae:
    return ConvolutionalVae(network).eval()
