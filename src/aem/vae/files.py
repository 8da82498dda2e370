"""The file of a prior, which belongs to the latents of one encoder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aem.base.files import tensor_digest, write_tensors
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.files import content, load_model, model_information


def digest(weights: Mapping[str, Tensor]) -> str:
    """Return a short digest of weights, which identifies the encoder of a prior.

    Parameters
    ----------
    weights
        tensors by name, as `state_dict` gives them.
    """
    return tensor_digest({name: weights[name].float() for name in sorted(weights)})[:16]


def save_prior(prior: AEM, network: nn.Module, path: str | Path, **about: Any) -> None:
    """Save a prior with the digest of the encoder that it was fitted for.

    Parameters
    ----------
    prior
        an AEM of the latents, as `fit_prior` returns it.
    network
        the VAE, or any encoder, whose latents the prior is of.
    path
        the file to write, whole or not at all.
    about
        anything JSON can hold, for instance how the prior was trained.
    """
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
    """Load the prior of an encoder; that of another encoder is refused.

    Parameters
    ----------
    path
        what `save_prior` wrote.
    network
        the VAE, or the encoder, that the prior was fitted for.
    device
        device of the prior.
    """
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
