"""The file of a prior: it belongs to the latents of one encoder, and no other."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aem.base.files import write_tensors
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.files import content, load_model, model_information


def digest(weights: Mapping[str, Tensor]) -> str:
    """A fingerprint of weights: a prior belongs to the latents of one encoder, no other."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode())
        total.update(weights[name].detach().cpu().contiguous().float().numpy().tobytes())
    return total.hexdigest()[:16]


def save_prior(prior: AEM, network: nn.Module, path: str | Path, **about: Any) -> None:
    """Save a prior with the fingerprint of the network it was fitted for: a VAE, or any encoder."""
    write_tensors(
        Path(path),
        prior.state_dict(),
        {
            **content(prior, "prior"),
            "encoder": digest(network.state_dict()),
            "about": {"task": "vae", **about},
        },
    )


def load_prior(path: str | Path, network: nn.Module, device: str | torch.device = "cpu") -> AEM:
    """Load the prior of this network; that of another is refused."""
    prior = load_model(path, device)
    expected, found = digest(network.state_dict()), model_information(path).get("encoder")
    if found is None:
        raise AemError(f"{path} does not say which stage one it was fitted to")
    if found != expected:
        raise AemError(
            f"{path} was fitted to another stage one ({found}, this one is {expected}): "
            "its latents are different"
        )
    return prior
