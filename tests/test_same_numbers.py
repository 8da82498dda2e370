"""The same numbers in any company and with any number of threads, whatever the linear algebra does.

Products here are off by an amount that depends on their shape and the number of threads. A promise that
holds all the same holds by construction.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aem import AEM, AEMOutlierDetector, ModelConfig, TableModel, set_threads
from aem.evaluation.side_by_side import evaluate
from aem.model.mixture import fit_mixture
from aem.nn.rowwise import FEW, MANY, in_blocks, products
from aem.tables.fit.automatic import fit_table
from aem.tables.fit.settings import FitSettings
from aem.tables.scores import TableScores
from aem.training import fit
from aem.training.loop import validation_scores
from tests.support.rough import rough_model, rows_of
from tests.support.short_runs import SHORT, TINY, TRAIN, VALIDATION, assert_same, fresh
from tests.support.unreliable import unreliable_products

THREADS = (1, 2, 4)
ROWS = 150  # more than a piece of work has, on every path


@pytest.fixture
def unreliable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with unreliable_products(monkeypatch):
        yield
    set_threads(None)


@pytest.fixture
def any_threads() -> Iterator[None]:
    yield
    set_threads(None)


def transformer(whiten: bool) -> AEM:
    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(200, 5)) @ np.triu(np.ones((5, 5)))
    config = ModelConfig(
        hidden=32, blocks=2, gamma=4, energy_hidden=16, energy_blocks=1, components=3,
        frequencies=2, network="transformer", whiten=whiten,
    )  # fmt: skip
    model = AEM.for_data(config, x).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def models() -> dict[str, AEM]:
    others: dict[str, dict[str, Any]] = {
        "tanh": {"energy_activation": "tanh"},
        "sigmoid": {"energy_activation": "sigmoid", "activation": "elu"},
        "plain": {"network": "made", "activation": "softplus", "energy_residual": False},
    }
    return {
        "relative": rough_model(features=3),
        "smooth": rough_model(features=3, size=1.0),
        "literal": rough_model("literal", features=3),
        "uniform": rough_model("relative", "uniform", features=3),
        **{name: rough_model(features=3, seed=3, **own) for name, own in others.items()},
        "context": rough_model(context=2, features=3),
        "transformer": transformer(whiten=False),
        "whitened": transformer(whiten=True),
    }


MODELS = tuple(models())


def question(name: str) -> tuple[AEM, Tensor, Tensor | None]:
    model = models()[name]
    context = None
    if model.config.context_features:
        context = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(2))
    return model, rows_of(model, ROWS), context


def table() -> TableModel:
    """A column of each kind a table model treats in a way of its own."""
    rng = np.random.default_rng(0)
    x = np.column_stack(
        (
            rng.normal(size=400),
            rng.integers(0, 4, 400),
            1e9 + rng.normal(size=400),
            np.exp(3 * rng.normal(size=400)),
        )
    )
    settings = FitSettings(steps=20, hidden=16, components=3, frequencies=2)
    model = fit_table(x, ["a", "count", "far", "heavy"], settings=settings).table
    with torch.no_grad():  # an energy that matters
        model.model.energy.final.weight.normal_(0, 0.3)
    return model


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_the_products_are_unreliable_indeed(unreliable: None) -> None:
    rows, weight = torch.randn(100, 8), torch.randn(8, 8)
    for product in (lambda x: F.linear(x, weight), lambda x: x @ weight):
        assert not torch.equal(product(rows)[:50], product(rows[:50]))


@pytest.mark.parametrize("name", MODELS)
def test_a_row_has_one_score_in_any_company(name: str, unreliable: None) -> None:
    model, rows, context = question(name)

    def score(some: list[int]) -> Tensor:
        given = None if context is None else context[some]
        scores = model(given).scores(rows[some])
        return torch.cat((scores.log_prob, scores.error, scores.log_proposal), -1)

    every = list(range(ROWS))
    expected = score(every)
    turned = score(every[::-1])
    same(turned.flip(0), expected)
    for some in ([7], [ROWS - 1], every[10:13], every[50:127], every[::5]):
        same(score(some), expected[some])


@pytest.mark.parametrize("name", MODELS)
def test_cumulative_probabilities_and_their_inverse_too(name: str, unreliable: None) -> None:
    model, rows, context = question(name)

    def ask(some: list[int]) -> tuple[Tensor, Tensor]:
        distribution = model(None if context is None else context[some])
        levels = torch.linspace(0.01, 0.99, ROWS, dtype=torch.float64)[some]
        return distribution.cdf(rows[some]), distribution.icdf(
            levels[:, None].expand(-1, rows.shape[1])
        )

    every = list(range(100))
    cdf, icdf = ask(every)
    for some in ([3], every[40:90], every[::7]):
        own_cdf, own_icdf = ask(some)
        same(own_cdf, cdf[some])
        same(own_icdf, icdf[some])


def test_looks_of_a_detector_too(unreliable: None) -> None:
    """A detector looks at a mixture of its own from further away."""
    x = np.random.default_rng(0).normal(size=(200, 3)).cumsum(1)
    detector = AEMOutlierDetector(components=2, steps=0).fit(x)
    expected = detector.score_samples(x)
    for some in ([5], list(range(50, 57)), list(range(0, 200, 3))):
        np.testing.assert_array_equal(detector.score_samples(x[some]), expected[some])


def test_rows_of_a_table_too(unreliable: None) -> None:
    model = table()
    rows = model.sample(ROWS, seed=1)
    expected = model.score(rows)
    for some in ([5], list(range(50, 57)), list(range(0, ROWS, 3))):
        found = model.score(rows[some])
        np.testing.assert_array_equal(found.log_density, expected.log_density[some])
        np.testing.assert_array_equal(found.error, expected.error[some])


@pytest.mark.parametrize("name", ["relative", "literal", "context", "whitened"])
def test_scores_and_draws_do_not_depend_on_the_number_of_threads(
    name: str, unreliable: None
) -> None:
    model, rows, context = question(name)
    distribution = model(context)

    def everything() -> list[Tensor]:
        torch.manual_seed(3)
        scores = distribution.scores(rows)
        u = distribution.cdf(rows)
        # A literal energy is drawn from by inversion, which takes its time.
        count = () if context is not None else (100,) if name == "literal" else (1500,)
        methods = ("exact", "resample", "proposal")
        draws = [distribution.sample(count, method=method) for method in methods]
        return [scores.log_prob, scores.error, u, *draws]

    found = []
    for threads in THREADS:
        set_threads(threads)
        found.append(everything())
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            same(b, a)


@pytest.mark.parametrize("network", ["resmade", "transformer"])
def test_training_does_not_depend_on_the_number_of_threads(
    network: Literal["resmade", "transformer"], unreliable: None
) -> None:
    """With batches of several shards, the last of them smaller, and dropout everywhere."""
    config = replace(SHORT, batch_size=300, steps=12, warmup=4)
    found = []
    for threads in THREADS:
        set_threads(threads)
        model = fresh(replace(TINY, network=network))
        found.append((model, fit(model, TRAIN, VALIDATION, config, quiet=True)))
    for other in found[1:]:
        assert_same(found[0], other)


def test_mixtures_do_not_depend_on_the_number_of_threads(any_threads: None) -> None:
    z = np.random.default_rng(0).normal(size=(5000, 4))
    found = []
    for threads in THREADS:
        set_threads(threads)
        found.append(fit_mixture(z, 5, 2.0, 0))
    for other in found[1:]:
        np.testing.assert_array_equal(other.means, found[0].means)
        np.testing.assert_array_equal(other.factors, found[0].factors)


def test_the_automatic_fit_does_not_depend_on_the_number_of_threads(any_threads: None) -> None:
    x = np.random.default_rng(0).normal(size=(3000, 3)).cumsum(1)
    settings = FitSettings(steps=30, hidden=16, components=3, frequencies=2, batch_size=300)
    found = []
    for threads in THREADS:
        set_threads(threads)
        table = fit_table(x, ["a", "b", "c"], settings=settings).table
        found.append(table.model.state_dict())
    for other in found[1:]:
        for name, value in found[0].items():
            same(other[name], value)


def test_all_four_scores_do_not_depend_on_the_number_of_threads(any_threads: None) -> None:
    model = rough_model(size=1.0)
    density = TableScores.of(TableModel(model))
    rows = rows_of(model, 120).numpy()
    found = []
    for threads in THREADS:
        set_threads(threads)
        found.append(evaluate(density, rows, samples=300, kde_samples=100))
    for other in found[1:]:
        for name in ("quadrature", "proposal", "importance", "kde"):
            assert getattr(other, name) == getattr(found[0], name)


def test_validation_does_not_depend_on_the_number_of_threads(unreliable: None) -> None:
    model = fresh().eval()
    z = model.standardise(torch.from_numpy(np.concatenate([TRAIN] * 3)))
    found = []
    for threads in THREADS:
        set_threads(threads)
        found.append(validation_scores(model, z, None))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block", [FEW, MANY])
def test_products_treat_their_rows_alike(dtype: torch.dtype, block: int) -> None:
    """What is left to the linear algebra of this machine: where a row stands, and among how many."""
    count = 5 * block
    places = torch.randperm(count)
    several = (places, places[:block], places[:1], places[: 2 * block - 1])
    for inner in (1, 2, 3, 4, 9, 16, 17, 33, 48, 64, 100, 256):
        for outer in (1, 2, 6, 13, 16, 39, 48, 128, 300):
            rows = torch.randn(count, inner, dtype=dtype)
            weight = torch.randn(outer, inner, dtype=dtype)
            expected = products(in_blocks(rows, block), weight).flatten(0, 1)
            for some in several:
                found = products(in_blocks(rows[some], block), weight).flatten(0, 1)
                same(found[: len(some)], expected[some])
    for hidden in (2, 16, 48, 50, 64, 100, 128, 256):
        rows, total = torch.randn(2, count, hidden, dtype=dtype)
        weight = torch.randn(hidden, hidden, dtype=dtype)

        def added(
            some: Tensor, rows: Tensor = rows, total: Tensor = total, w: Tensor = weight
        ) -> Tensor:
            onto, own = (in_blocks(t[some].clone(), block) for t in (total, rows))
            onto.baddbmm_(own, w.expand(len(own), -1, -1), alpha=1.25)
            return onto.flatten(0, 1)[: len(some)]

        expected = added(torch.arange(count))
        for some in several:
            same(added(some), expected[some])
