"""Deformed images are images, like the ones they come from, and no two alike."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from aem.errors import AemError
from aem.paper.vae.binarise import grey_levels
from aem.paper.vae.config import AugmentConfig, DataConfig, StageConfig
from aem.paper.vae.images import Images, load_images
from aem.paper.vae.stages.steps import strength_of
from aem.paper.vae.stages.warp import warp

STILL = AugmentConfig(**{field.name: 0.0 for field in fields(AugmentConfig)})


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def grey(images: Images) -> torch.Tensor:
    return grey_levels(images.train[:, None])


def test_an_image_stays_one(grey: torch.Tensor) -> None:
    warped = warp(grey, AugmentConfig(), generator=seeded(0))
    assert warped.shape == grey.shape
    assert 0 <= warped.min() < warped.max() <= 1
    dull = warp(grey, replace(AugmentConfig(), contrast=0.0), generator=seeded(0))
    assert abs(dull.mean() / grey.mean() - 1) < 0.05, "spots have more dark grey than strokes"
    assert (warped - grey).abs().mean() > 0.1 * grey.mean()


@pytest.mark.parametrize(("config", "strength"), [(AugmentConfig(), 0.0), (STILL, 1.0)])
def test_no_strength_is_no_change(
    config: AugmentConfig, strength: float, grey: torch.Tensor
) -> None:
    assert torch.allclose(warp(grey, config, strength, seeded(0)), grey, atol=1e-4)


@pytest.mark.parametrize("name", [field.name for field in fields(AugmentConfig)])
def test_every_setting_does_something_and_more_of_it_does_more(
    name: str, grey: torch.Tensor
) -> None:
    config = replace(STILL, **{name: getattr(AugmentConfig(), name)})
    near, far = (
        (warp(grey, config, strength, seeded(0)) - grey).abs().mean() for strength in (0.2, 0.4)
    )
    assert 1e-4 < near < far


def test_a_shift_moves_what_is_there() -> None:
    """Half a pixel at most, each image by a distance of its own."""
    grey = torch.zeros(500, 1, 28, 28)
    grey[:, :, 10:16, 12:18] = 1.0
    places = torch.arange(28.0)
    warped = warp(grey, replace(STILL, shift=0.5), generator=seeded(1))
    for axis in (2, 3):
        mass = warped.sum((1, 5 - axis))
        centre = (mass * places).sum(1) / mass.sum(1)
        moved = centre - (12.5 if axis == 2 else 14.5)
        assert moved.abs().max() < 0.55
        assert moved.abs().max() > 0.4
        assert moved.mean().abs() < 0.05


@pytest.mark.data
def test_as_many_pixels_are_in_doubt_as_before(real_data: Callable[[str], Path]) -> None:
    """Nats of binary digits given their grey levels: a density would learn another blur."""
    real_data("mnist")
    grey = grey_levels(load_images(DataConfig(train_images=500)).train[:, None])

    def doubt(levels: torch.Tensor) -> float:
        return float(torch.special.entr(torch.stack((levels, 1 - levels))).sum() / len(levels))

    for strength in (0.25, 0.5, 1.0, 2.0):
        warped = warp(grey, AugmentConfig(), strength, seeded(0))
        assert abs(doubt(warped) / doubt(grey) - 1) < 0.12
        assert abs(warped.mean() / grey.mean() - 1) < 0.03


def test_a_seed_decides(grey: torch.Tensor) -> None:
    first, again, other = (warp(grey, AugmentConfig(), generator=seeded(s)) for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=0.1)


def test_strength_falls_to_the_end() -> None:
    config = StageConfig(steps=100, augment=1.0, augment_end=0.2, augment_until=0.8)
    found = [strength_of(step, config) for step in (0, 40, 60, 80, 99)]
    assert found == pytest.approx([1.0, 1.0, 0.6, 0.2, 0.2])
    assert strength_of(50, StageConfig()) == 0


def test_bad_settings_are_told() -> None:
    for wrong in ({"shift": -1.0}, {"zoom": 1.0}, {"elastic": -0.1}):
        with pytest.raises(AemError, match=next(iter(wrong))):
            AugmentConfig(**wrong)
    with pytest.raises(AemError, match="augment_until"):
        StageConfig(augment_until=0.0)
