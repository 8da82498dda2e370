"""MNIST as the experiment sees it: grey levels, split into training, validation and test."""

from dataclasses import dataclass

import torch
from jaxtyping import UInt8
from torch import Tensor

from aem.data.digest import content_sha256
from aem.data.info import data_root
from aem.data.sets import mnist
from aem.errors import AemError
from aem.paper.vae.config import DataConfig


@dataclass(frozen=True)
class Images:
    """Grey images, one byte a pixel."""

    train: UInt8[Tensor, "N 28 28"]
    validation: UInt8[Tensor, "V 28 28"]
    test: UInt8[Tensor, "T 28 28"]

    def to(self, device: torch.device) -> "Images":
        """The same on a device."""
        return Images(self.train.to(device), self.validation.to(device), self.test.to(device))


def load_images(config: DataConfig) -> Images:
    """Read MNIST, or say what is missing and how to get it."""
    (info,), root = mnist.DATASETS, data_root()
    missing = [file.path for file in info.sources[0].files if not file.present(root)]
    if missing:
        lacks = ", ".join(missing)
        raise AemError(f"mnist is not under {root}, which lacks {lacks}: {info.how_to_get}")
    data = mnist.load()
    for file in info.sources[0].files:
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
