"""Small images and networks, for every test of this folder."""

from tests.support.small_vae import images, network, vae

__all__ = ["images", "network", "vae"]
