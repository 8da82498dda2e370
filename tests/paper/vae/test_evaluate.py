"""Which images are scored, what a part of them says of all, and scores that are kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aem import AEM, ModelConfig
from aem.paper.vae import evaluate as module
from aem.paper.vae.binarise import fixed_binarisation
from aem.paper.vae.config import EvaluationConfig
from aem.paper.vae.evaluate import ORDER_SEED, TEST_SEED, PriorScoring
from aem.paper.vae.images import Images
from aem.paper.vae.networks import ConvolutionalVae
from aem.vae.priors import importance_prior

CONFIG = EvaluationConfig(
    samples=4,
    images=64,
    importance_images=10,
    importance_samples=20,
    kde_images=6,
    kde_samples=20,
    kde_fit_images=8,
    quadrature_images=8,
)


@pytest.fixture
def prior(randomise: Callable[[nn.Module], None]) -> AEM:
    model = AEM(ModelConfig(features=3, hidden=16, blocks=1, gamma=4, energy_hidden=8))
    randomise(model)
    return model.eval().requires_grad_(False)


@pytest.fixture(autouse=True)
def two_images_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENERGIES", {"cpu": 8 * 3 * 20})
    monkeypatch.setattr(module, "QUADRATURE_NODES", 20)


def scored(vae: ConvolutionalVae, images: Images, prior: AEM, folder: Path) -> dict[str, Any]:
    evaluation = PriorScoring(vae, images, CONFIG, folder)
    evaluation.trained_priors()
    evaluation.fitted_priors(prior)
    return evaluation.records


def without_clock(records: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {key: value for key, value in record.items() if key != "seconds"}
        for name, record in records.items()
    }


def test_a_part_is_a_random_one_and_the_whole_is_all(
    vae: ConvolutionalVae, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    encode = vae.encode

    def watched(x: torch.Tensor) -> Any:
        seen.append(x)
        return encode(x)

    monkeypatch.setattr(vae, "encode", watched)
    PriorScoring(vae, images, CONFIG, Path("unused"))
    x = torch.cat(seen)[:, 0]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(ORDER_SEED))
    assert torch.equal(x, fixed_binarisation(images.test, TEST_SEED)[order])
    assert not torch.equal(order, torch.arange(64)), "MNIST's own order is no random one"


def test_a_stopped_evaluation_goes_on_and_a_finished_one_is_read(
    vae: ConvolutionalVae,
    images: Images,
    prior: AEM,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = scored(vae, images, prior, tmp_path / "whole")
    assert [whole[k]["images"] for k in ("gaussian", "quadrature", "importance", "kde")] == [
        64,
        8,
        10,
        6,
    ]

    original, calls = importance_prior, 0

    def stopping(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(module, "importance_prior", stopping)
    monkeypatch.setattr("aem.evaluation.resumable.SECONDS_BETWEEN_WRITES", 0.0)
    with pytest.raises(KeyboardInterrupt):
        scored(vae, images, prior, tmp_path / "stopped")
    calls = 10

    def refuse(*_: Any) -> Any:
        raise AssertionError("this score was done")

    with monkeypatch.context() as patch:
        patch.setattr(module, "quadrature_prior", lambda *_: refuse)
        again = scored(vae, images, prior, tmp_path / "stopped")
    assert calls == 12, "three of five blocks were done"
    assert without_clock(again) == without_clock(whole)

    # Another prior's scores are not taken for these.
    with torch.no_grad():
        prior.arnn.final.bias.add_(0.1)
    monkeypatch.setattr(module, "importance_prior", original)
    other = scored(vae, images, prior, tmp_path / "stopped")
    assert other["quadrature"]["log_prob"] != whole["quadrature"]["log_prob"]
    assert other["kde"]["log_prob"] != whole["kde"]["log_prob"]


def test_time_can_run_out(
    vae: ConvolutionalVae, images: Images, prior: AEM, tmp_path: Path
) -> None:
    config = EvaluationConfig(**{**CONFIG.__dict__, "seconds": 1e-9})
    evaluation = PriorScoring(vae, images, config, tmp_path)
    evaluation.trained_priors()
    evaluation.fitted_priors(prior)
    record = evaluation.records["importance"]
    assert record["images"] == 2, "one block, of whole images"
    assert abs(record["log_prob_whole_split"] - evaluation.records["proposal"]["log_prob"]) < 5
    assert record["log_prob_whole_split_2se"] > 0
