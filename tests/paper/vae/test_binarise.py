"""Training sees new pixels every epoch, evaluation the same ones always."""

import copy

import torch

from aem.paper.vae.binarise import binarise, fixed_binarisation, grey_levels
from aem.paper.vae.config import StageConfig
from aem.paper.vae.images import Images
from aem.paper.vae.networks import ConvolutionalVae
from aem.paper.vae.stages.latent import LatentModel
from aem.paper.vae.stages.optimiser import make_optimiser
from aem.paper.vae.stages.steps import StageStep


def test_a_pixel_is_one_as_often_as_it_is_bright() -> None:
    grey = torch.zeros(4000, 28, 28, dtype=torch.uint8)
    grey[:, 0], grey[:, 1] = 255, 51
    x = binarise(grey_levels(grey))
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert bool((x[:, 0] == 1).all())
    assert bool((x[:, 2:] == 0).all())
    assert abs(float(x[:, 1].mean()) - 0.2) < 0.005


def test_fixed_binarisation_is_a_function_of_the_seed(images: Images) -> None:
    first = fixed_binarisation(images.test, 2)
    torch.rand(7)  # other random numbers in between do not matter
    assert torch.equal(first, fixed_binarisation(images.test, 2))
    assert not torch.equal(first, fixed_binarisation(images.test, 3))


def test_every_epoch_sees_other_pixels(images: Images, vae: ConvolutionalVae) -> None:
    model, config = LatentModel(vae), StageConfig(steps=10)
    optimiser = make_optimiser(model, config, torch.device("cpu"))
    step = StageStep(model, copy.deepcopy(model), optimiser, config, images.train)
    indices = torch.arange(8)
    one, two = step.batch(indices, warped=False), step.batch(indices, warped=False)
    assert one.shape == (8, 1, 28, 28)
    assert not torch.equal(one, two)
    certain = (images.train[:8, None] == 0) | (images.train[:8, None] == 255)
    assert torch.equal(one[certain], two[certain]), "only doubtful pixels change"
