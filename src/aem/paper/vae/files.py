"""The file of encoder and decoder, and checkpoints of their training stages.

A checkpoint can be used like a result, finished or not: its best weights so far are read.
"""

from pathlib import Path
from typing import Any

import torch

from aem.base.files import blaming_file, header, part_of_file, read_tensors, write_tensors
from aem.base.settings import from_mapping, to_mapping
from aem.config import ModelConfig
from aem.model.aem import AEM
from aem.paper.vae.config import NetworkConfig
from aem.paper.vae.networks import ConvolutionalVae
from aem.paper.vae.stages.latent import LatentModel


def save_vae(vae: ConvolutionalVae, path: str | Path, **about: Any) -> None:
    """Save encoder and decoder in one safe file.

    Parameters
    ----------
    vae
        the network; the type of its weights is kept.
    path
        the file to write, whole or not at all.
    about
        anything JSON can hold, for instance how it was trained.
    """
    metadata = {
        **header("vae"),
        "config": to_mapping(vae.config),
        "about": about,
    }
    write_tensors(Path(path), vae.state_dict(), metadata)


def load_vae(path: str | Path, device: str | torch.device = "cpu") -> ConvolutionalVae:
    """Load encoder and decoder in evaluation mode. No code in the file is ever run.

    Parameters
    ----------
    path
        what `save_vae` or `aem reproduce vae` wrote.
    device
        device of the network.
    """
    path = Path(path)
    tensors, metadata = read_tensors(path, "vae")
    with blaming_file(path, "VAE"):
        vae = ConvolutionalVae(from_mapping(NetworkConfig, metadata["config"]))
        vae.load_state_dict(tensors)
    return vae.to(device).eval()


def load_stage(path: str | Path) -> LatentModel:
    """Read what `save_vae` wrote, or a checkpoint, with the prior that the stage trains.

    Of a checkpoint the best weights so far are read, or the average before the first validation.
    """
    path = Path(path)
    tensors, metadata = read_tensors(path, "vae", "checkpoint")
    if metadata["kind"] == "vae":
        return LatentModel(load_vae(path))
    with blaming_file(path, "stage of a VAE"):
        shapes = metadata["config"]
        vae = ConvolutionalVae(from_mapping(NetworkConfig, shapes["vae"]))
        learnt = shapes["prior"]
        prior = None if learnt is None else AEM(from_mapping(ModelConfig, learnt))
        model = LatentModel(vae, prior)
        best = part_of_file(tensors, "best") or part_of_file(tensors, "average")
        model.load_state_dict(best)
    return model.eval()
