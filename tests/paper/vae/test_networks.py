"""The architecture of the paper, and a likelihood that is one."""

import torch
from torch import nn
from torch.nn import functional as F

from aem.paper.vae.binarise import binarise
from aem.paper.vae.config import NetworkConfig
from aem.paper.vae.networks import ConvolutionalVae


def resolutions(module: nn.Module, argument: torch.Tensor) -> list[tuple[int, ...]]:
    """Channels and sizes after each residual block."""
    seen: list[tuple[int, ...]] = []
    blocks = module.blocks
    assert isinstance(blocks, nn.Sequential)
    for block in blocks:
        block.register_forward_hook(lambda _m, _i, out: seen.append(tuple(out.shape[1:])))
    module(argument)
    return seen


def test_the_papers_architecture() -> None:
    """1×1 projection to 16 channels; residual and resampling blocks alternate; 4×4×128 inside."""
    vae = ConvolutionalVae(NetworkConfig())
    assert vae.encoder.project.kernel_size == (1, 1)
    assert resolutions(vae.encoder, torch.zeros(2, 1, 28, 28)) == [
        (16, 28, 28),
        (32, 14, 14),
        (32, 14, 14),
        (64, 7, 7),
        (64, 7, 7),
        (128, 4, 4),
    ]
    assert resolutions(vae.decoder, torch.zeros(2, 32)) == [
        (64, 7, 7),
        (64, 7, 7),
        (32, 14, 14),
        (32, 14, 14),
        (16, 28, 28),
        (16, 28, 28),
    ]
    assert vae.decoder.innermost == (128, 4, 4)
    transposed = [m for m in vae.decoder.modules() if isinstance(m, nn.ConvTranspose2d)]
    assert len(transposed) == 2 * 3  # on the way and on the shortcut
    posterior = vae.encode(torch.zeros(2, 1, 28, 28))
    assert posterior.mean.shape == posterior.scale.shape == (2, 32)
    assert vae.logits(posterior.mean).shape == (2, 1, 28, 28)


def test_more_blocks_change_depth_and_not_shapes() -> None:
    vae = ConvolutionalVae(NetworkConfig(latents=5, channels=4, blocks=2, activation="silu"))
    assert len(resolutions(vae.encoder, torch.zeros(1, 1, 28, 28))) == 9
    assert vae.logits(torch.zeros(1, 5)).shape == (1, 1, 28, 28)


def test_a_decoder_may_have_its_blocks_before_it_grows() -> None:
    vae = ConvolutionalVae(NetworkConfig(channels=4, decoder="before"))
    assert resolutions(vae.decoder, torch.zeros(2, 32)) == [
        (32, 4, 4),
        (16, 7, 7),
        (16, 7, 7),
        (8, 14, 14),
        (8, 14, 14),
        (4, 28, 28),
    ]


def test_likelihood_is_bernoulli(vae: ConvolutionalVae) -> None:
    x = binarise(torch.full((2, 1, 28, 28), 0.3))
    z = torch.randn(2, 4, 3)
    found = vae.log_likelihood(x, z)
    for image in range(2):
        for draw in range(4):
            logits = vae.logits(z[image, draw][None])
            expected = -F.binary_cross_entropy_with_logits(logits, x[image][None], reduction="sum")
            torch.testing.assert_close(found[image, draw], expected, rtol=1e-4, atol=1e-3)


def test_a_posterior_belongs_to_its_image(vae: ConvolutionalVae) -> None:
    """Rows of a batch do not see each other."""
    x = binarise(torch.rand(3, 1, 28, 28))
    together, alone = vae.encode(x), vae.encode(x[1:2])
    torch.testing.assert_close(together.mean[1:2], alone.mean, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together.mean[0], together.mean[1])
