"""One contract for every kind of model: shapes, gradients, files and devices."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aem import AEM, load_model, save_model
from tests.support.every import MODELS, context_of, model_of
from tests.support.rough import rows_of

pytestmark = pytest.mark.filterwarnings("ignore::aem.AccuracyWarning")
every_model = pytest.mark.parametrize("name", MODELS)
every_context = pytest.mark.parametrize("context", [0, 2])
SHAPES = ((), (1,), (4,), (2, 3))


def question(name: str, context: int) -> tuple[AEM, Tensor, Tensor | None]:
    """A model, three rows, and a context for each."""
    model = model_of(name, context=context)
    return model, rows_of(model, 3), context_of(model, 3)


@every_context
@every_model
def test_shapes(name: str, context: int) -> None:
    model, rows, given = question(name, context)
    for shape in SHAPES:
        x = rows[:1].expand(*shape, 1, 2)[..., 0, :]
        one = None if given is None else given[0]
        assert model(one).log_prob(x).shape == shape
        assert model(one).sample(shape, "proposal").shape == (*shape, 2)
        if given is not None:
            every = model(given)
            assert every.batch_shape == (3,) and every.event_shape == (2,)
            assert every.log_prob(x[..., None, :]).shape == (*shape, 3)
            assert every.sample(shape, "proposal").shape == (*shape, 3, 2)
    drawn = model(given).sample((2,))
    u = model(given).cdf(drawn)
    assert u.shape == drawn.shape == ((2, 2) if given is None else (2, 3, 2))
    torch.testing.assert_close(model(given).icdf(u), drawn, rtol=1e-4, atol=1e-4)


@every_context
@every_model
def test_gradients_of_log_densities_and_draws(name: str, context: int) -> None:
    """Everything that is asked to has a gradient, and it is a number."""
    model, rows, given = question(name, context)
    leaves = [t.clone().requires_grad_() for t in (rows, given) if t is not None]
    model(*leaves[1:]).log_prob(leaves[0]).sum().backward()
    for leaf in leaves:
        assert leaf.grad is not None and bool(leaf.grad.isfinite().all())
        assert float(leaf.grad.abs().max()) > 0
    for part, parameter in model.named_parameters():
        assert parameter.grad is not None, part
        assert bool(parameter.grad.isfinite().all()), part
    model.zero_grad()
    own = None if given is None else given.clone().requires_grad_()
    model(own).rsample((2,)).sum().backward()
    assert own is None or (own.grad is not None and float(own.grad.abs().max()) > 0)
    final = model.energy.final.weight.grad
    assert final is not None and bool(final.isfinite().all()) and float(final.abs().max()) > 0


@every_context
@every_model
def test_the_loss_trains_it(name: str, context: int) -> None:
    """A few small steps down the gradient lower it, the nodes being the same."""
    model, rows, given = question(name, context)
    rows, given = rows.float(), None if given is None else given.float()

    def loss() -> Tensor:
        torch.manual_seed(1)
        return model.loss(rows, given)

    before = float(loss().detach())
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(5):
        optimiser.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    assert math.isfinite(before) and float(loss().detach()) < before


@every_context
@every_model
def test_saved_and_loaded(name: str, context: int, tmp_path: Path) -> None:
    model, rows, given = question(name, context)
    expected = model(given).log_prob(rows)
    save_model(model, tmp_path / "model.aem")
    loaded = load_model(tmp_path / "model.aem")
    torch.testing.assert_close(loaded(given).log_prob(rows), expected, rtol=0, atol=0)
    assert loaded.columns == model.columns and loaded.config == model.config


@pytest.mark.gpu
@every_context
@every_model
def test_on_another_device(name: str, context: int) -> None:
    model, rows, given = question(name, context)
    expected = model(given).log_prob_and_error(rows, 1e-6)[0]
    own = None if given is None else given.cuda()
    found = model.cuda()(own).log_prob_and_error(rows.cuda(), 1e-6)[0]
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-4)
    assert model(own).rsample((2,)).device.type == "cuda"
