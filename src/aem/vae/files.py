"""The two files of a latent-variable model: encoder and decoder, and the prior that fits them.

A stage's checkpoint may stand for its result, finished or not: its best weights so far are read.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aem.config import ModelConfig, from_mapping, to_mapping
from aem.errors import AemError
from aem.io import (
    FORMAT,
    FORMAT_VERSION,
    load_model,
    model_information,
    read_tensors,
    save_model,
    write_tensors,
)
from aem.model import AEM
from aem.vae.config import NetworkConfig
from aem.vae.latent import LatentModel
from aem.vae.networks import ConvolutionalVae


def digest(weights: Mapping[str, Tensor]) -> str:
    """A fingerprint of weights: a prior belongs to the latents of one encoder, no other."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode())
        total.update(weights[name].detach().cpu().contiguous().float().numpy().tobytes())
    return total.hexdigest()[:16]


def save_vae(vae: ConvolutionalVae, path: str | Path, **about: Any) -> None:
    """Save encoder and decoder; `about` may hold anything JSON can."""
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": "vae",
        "config": to_mapping(vae.config),
        "about": about,
    }
    write_tensors(Path(path), vae.state_dict(), metadata)


def load_vae(path: str | Path, device: str | torch.device = "cpu") -> ConvolutionalVae:
    """Load encoder and decoder in evaluation mode. No code in the file is ever run."""
    path = Path(path)
    tensors, metadata = read_tensors(path, "vae")
    try:
        vae = ConvolutionalVae(from_mapping(NetworkConfig, metadata["config"]))
        vae.load_state_dict(tensors)
    except (KeyError, RuntimeError, TypeError) as error:
        raise AemError(f"{path} does not hold a complete VAE: {error}") from error
    return vae.to(device).eval()


def save_prior(prior: AEM, network: nn.Module, path: str | Path, **about: Any) -> None:
    """Save a prior with the fingerprint of the network it was fitted for: a VAE, or any encoder."""
    save_model(prior, path, task="vae", stage_one=digest(network.state_dict()), **about)


def load_prior(path: str | Path, network: nn.Module, device: str | torch.device = "cpu") -> AEM:
    """Load the prior of this network; that of another is refused."""
    about = model_information(path).get("about", {})
    prior = load_model(path, device)
    latents = prior.config.features
    if isinstance(network, ConvolutionalVae) and network.config.latents != latents:
        raise AemError(
            f"{path} is a prior of {latents} latents, stage one has {network.config.latents}"
        )
    expected, found = digest(network.state_dict()), about.get("stage_one")
    if found is None:
        raise AemError(f"{path} does not say which stage one it was fitted to")
    if found != expected:
        raise AemError(
            f"{path} was fitted to another stage one ({found}, this one is {expected}): "
            "its latents mean something else"
        )
    return prior


def load_stage(path: str | Path, device: str | torch.device = "cpu") -> LatentModel:
    """The best weights so far of a stage's checkpoint, or its average before any were validated."""
    path = Path(path)
    tensors, metadata = read_tensors(path, "checkpoint")
    try:
        shapes = metadata["config"]
        vae = ConvolutionalVae(from_mapping(NetworkConfig, shapes["vae"]))
        learnt = shapes["prior"]
        prior = None if learnt is None else AEM(from_mapping(ModelConfig, learnt))
        model = LatentModel(vae, prior)
        model.load_state_dict(_best(tensors))
    except (KeyError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise AemError(f"{path} is not the checkpoint of a VAE's stage: {reason}") from error
    return model.to(device).eval()


def is_checkpoint(path: str | Path) -> bool:
    """Whether a file is a stage's checkpoint rather than a saved model."""
    try:
        read_tensors(Path(path), "checkpoint")
    except AemError:
        return False
    return True


def compact_checkpoint(path: str | Path, target: str | Path, *, half: bool = True) -> None:
    """Write what `load_stage` reads of a checkpoint and nothing else: a fifth of it, or a tenth.

    Without the optimiser's moments it cannot be resumed to the same bits, but gone on from.
    """
    tensors, metadata = read_tensors(Path(path), "checkpoint")
    kept = {f"best.{name}": value for name, value in _best(tensors).items()}
    if half:  # matrices alone: a float16 standardisation would be felt
        kept = {name: v.half() if v.ndim > 1 else v for name, v in kept.items()}
    write_tensors(Path(target), kept, metadata)


def _best(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    for start in ("best.", "average."):
        found = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
        if found:
            return found
    return {}
