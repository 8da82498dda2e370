"""Files of both stages, and stages that do not belong together."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from aem import AEM, ModelConfig
from aem.errors import AemError
from aem.model.files import save_model
from aem.paper.vae.config import NetworkConfig
from aem.paper.vae.files import load_vae, save_vae
from aem.paper.vae.networks import ConvolutionalVae
from aem.vae import load_prior, save_prior

PRIOR = ModelConfig(features=3, hidden=8, blocks=1, gamma=4, energy_hidden=8, frequencies=0)


def test_both_files_come_back(vae: ConvolutionalVae, tmp_path: Path) -> None:
    prior = AEM(PRIOR).eval()
    save_vae(vae, tmp_path / "vae.aem", preset="fast")
    save_prior(prior, vae, tmp_path / "prior.aem")
    again = load_vae(tmp_path / "vae.aem")
    x = (torch.rand(2, 1, 28, 28) < 0.3).float()
    assert torch.equal(again.encode(x).mean, vae.encode(x).mean)
    # The layout in memory is no part of the weights.
    again = again.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = load_prior(tmp_path / "prior.aem", again)
    z = torch.randn(3, 3)
    assert torch.equal(found().log_prob(z), prior().log_prob(z))


def test_a_prior_of_another_stage_one_is_refused(
    vae: ConvolutionalVae, network: NetworkConfig, tmp_path: Path
) -> None:
    path = tmp_path / "prior.aem"
    save_prior(AEM(PRIOR), vae, path)
    with pytest.raises(AemError, match="fitted to another stage one"):
        load_prior(path, ConvolutionalVae(network))
    with pytest.raises(AemError, match="was fitted to another stage one"):
        load_prior(path, ConvolutionalVae(replace(network, latents=5)))
    save_model(AEM(PRIOR), path)
    with pytest.raises(AemError, match="does not say which stage one"):
        load_prior(path, vae)


def test_any_encoder_may_have_a_prior(tmp_path: Path) -> None:
    path, encoder = tmp_path / "prior.aem", nn.Linear(4, 6)
    save_prior(AEM(PRIOR), encoder, path)
    assert load_prior(path, encoder).config.features == 3
    with pytest.raises(AemError, match="its latents are different"):
        load_prior(path, nn.Linear(4, 6))


def test_files_of_another_kind_are_refused(vae: ConvolutionalVae, tmp_path: Path) -> None:
    save_model(AEM(PRIOR), tmp_path / "prior.aem")
    save_vae(vae, tmp_path / "vae.aem")
    with pytest.raises(AemError, match="not an aem vae file"):
        load_vae(tmp_path / "prior.aem")
    with pytest.raises(AemError, match="not an aem model file"):
        load_prior(tmp_path / "vae.aem", vae)
    with pytest.raises(AemError, match="there is no vae file"):
        load_vae(tmp_path / "missing.aem")
