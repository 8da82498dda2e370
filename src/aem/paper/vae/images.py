"""The images of the experiment: MNIST in grey levels, with its splits."""

from dataclasses import dataclass

import torch
from jaxtyping import UInt8
from torch import Tensor

from aem.data import registry
from aem.data.digest import content_sha256
from aem.data.info import data_root
from aem.data.sets import mnist
from aem.errors import AemError
from aem.paper.vae.config import DataConfig


@dataclass(frozen=True)
class Images:
    """Grey images of digits, one byte per pixel.

    Parameters
    ----------
    train
        images to train on.
    validation
        images that choose the weights.
    test
        images to score.
    """

    train: UInt8[Tensor, "N 28 28"]
    validation: UInt8[Tensor, "V 28 28"]
    test: UInt8[Tensor, "T 28 28"]

    def to(self, device: torch.device) -> "Images":
        """Return the same images on a device.

        Parameters
        ----------
        device
            where they will be.
        """
        return Images(self.train.to(device), self.validation.to(device), self.test.to(device))


def load_images(config: DataConfig) -> Images:
    """Read MNIST, or say what is missing and how to get it.

    Parameters
    ----------
    config
        how the training images are split.
    """
    source, root = registry.present_source("mnist"), data_root()
    data = mnist.load()
    for file in source.files:
        if content_sha256(root / file.path) != file.sha256:
            raise AemError(f"{root / file.path} is not the file of MNIST: its checksum differs")
    total = len(data.train_images)
    left = total - config.validation_images
    count = config.train_images or left
    if left < 1 or count > left:
        raise AemError(
            f"data: {count} training and {config.validation_images} validation images are more "
            f"than the {total} there are"
        )
    train = torch.from_numpy(data.train_images)
    return Images(train[:count], train[left:], torch.from_numpy(data.test_images))
