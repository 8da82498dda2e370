import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aem.conditionals.quadrature import (
    NODES_PER_PANEL,
    Budget,
    Integrals,
    Integrand,
    NodeValues,
    integrate,
)


def plain(function: Callable[[Tensor, Tensor], Tensor]) -> Integrand:
    """A function against length, with nothing hidden between its nodes."""

    def integrand(problem: Tensor, t: Tensor, start: Tensor, end: Tensor) -> NodeValues:
        return NodeValues(
            function(problem, t), torch.ones_like(t), end - start, torch.zeros_like(end)
        )

    return integrand


EDGES = torch.linspace(0, 1, 9, dtype=torch.float64)
# Integrands of t and a parameter a, with their integrals over [0, 1].
CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "power": (lambda t, a: t**a, lambda a: 1 / (a + 1)),
    "kink": (lambda t, a: (t - a / 50).abs(), lambda a: (a / 50) ** 2 / 2 + (1 - a / 50) ** 2 / 2),
    "jump": (lambda t, a: 0.1 + (t > a / 50).to(t), lambda a: 1.1 - a / 50),
    "waves": (
        lambda t, a: 1 + torch.sin(7 * a * t),
        lambda a: 1 + (1 - torch.cos(7 * a)) / (7 * a),
    ),
    "peak": (
        lambda t, a: torch.exp(-0.5 * ((t - a / 50) * 300).square()),
        lambda a: torch.full_like(a, math.sqrt(2 * math.pi) / 300),
    ),
}
PARAMETERS = torch.linspace(5.3, 41.7, 16, dtype=torch.float64)


def solve(case: str, tolerance: float = 1e-6, budget: Budget | None = None) -> Integrals:
    function, _ = CASES[case]
    return integrate(
        plain(lambda problem, t: function(t, PARAMETERS[problem, None])),
        len(PARAMETERS),
        tolerance=tolerance,
        edges=EDGES,
        budget=budget or Budget(),
        keep_panels=True,
    )


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("case", CASES)
def test_errors_are_as_stated(case: str, tolerance: float) -> None:
    result = solve(case, tolerance)
    truth = CASES[case][1](PARAMETERS)
    assert bool(result.converged.all())
    assert bool((result.error <= tolerance * result.value).all())
    assert bool(((result.value - truth).abs() <= result.error + 1e-14).all())
    assert torch.equal(result.value, result.core)  # all of [0, 1] is the core


@pytest.mark.parametrize("case", CASES)
def test_the_budget_changes_no_number(case: str) -> None:
    """Chunks of one panel, panels of one problem at a time: only the order of the work differs."""
    reference = solve(case)
    for budget in (Budget(chunk=1, panels=1), Budget(chunk=100, panels=50), Budget(panels=400)):
        other = solve(case, budget=budget)
        torch.testing.assert_close(other.value, reference.value, rtol=0, atol=1e-14)
        torch.testing.assert_close(other.error, reference.error, rtol=0, atol=1e-14)
        assert torch.equal(other.nodes, reference.nodes)
        assert other.panels is not None and reference.panels is not None
        assert len(other.panels) == len(reference.panels)


def test_panels_tile_the_interval_and_add_up() -> None:
    result = solve("peak")
    assert result.panels is not None
    panels = result.panels
    for problem in range(len(PARAMETERS)):
        own = panels.take(panels.problem == problem)
        own = own.take(own.start.argsort())
        assert own.start[0] == 0 and own.end[-1] == 1
        assert torch.equal(own.start[1:], own.end[:-1])
        assert own.integral.sum() == pytest.approx(float(result.value[problem]), rel=1e-13)


def gaussian(width: float) -> tuple[Callable[..., Tensor], Callable[[Tensor], Tensor]]:
    """Density and CDF of N(0.4, width) on the unit interval."""

    def density(t: Tensor) -> Tensor:
        z = (t - 0.4) / width
        return torch.exp(-0.5 * z.square()) / (width * math.sqrt(2 * math.pi))

    return density, lambda t: torch.special.ndtr((t - 0.4) / width)


@pytest.mark.parametrize("width", [1e-1, 1e-3, 1e-7])
def test_a_constant_weight_is_exact_however_rough_its_measure(width: float) -> None:
    density, below = gaussian(width)

    def integrand(problem: Tensor, t: Tensor, start: Tensor, end: Tensor) -> NodeValues:
        return NodeValues(0 * t + 0.3, density(t), below(end) - below(start), 0 * end)

    result = integrate(integrand, 1, tolerance=1e-9, edges=EDGES, budget=Budget())
    assert float(result.value) == pytest.approx(0.3 * float(below(EDGES[-1]) - below(EDGES[0])))
    assert int(result.nodes) == 8 * NODES_PER_PANEL


@pytest.mark.parametrize("width", [1e-2, 1e-4, 1e-6])
def test_mass_that_no_node_has_seen_is_looked_for(width: float) -> None:
    """A peak of the measure far narrower than a panel, where the weight is not what it is outside."""
    density, below = gaussian(width)

    def integrand(problem: Tensor, t: Tensor, start: Tensor, end: Tensor) -> NodeValues:
        z = (t - 0.4) / (3 * width)
        weight = 0.1 + 0.9 * torch.exp(-0.5 * z.square()) + 0.01 * t
        return NodeValues(weight, density(t), below(end) - below(start), 0 * end)

    result = integrate(integrand, 1, tolerance=1e-6, edges=EDGES, budget=Budget())
    truth = 0.1 + 0.9 * 3 / math.sqrt(10) + 0.004
    assert abs(float(result.value) - truth) <= float(result.error)
    assert bool(result.converged)


def test_what_may_hide_is_part_of_the_error() -> None:
    """The same function, once with a tenth of each panel's mass in doubt."""
    function, _ = CASES["waves"]

    def doubtful(problem: Tensor, t: Tensor, start: Tensor, end: Tensor) -> NodeValues:
        weight = function(t, PARAMETERS[problem, None])
        return NodeValues(weight, torch.ones_like(t), end - start, 0.1 * (end - start))

    budget = Budget(max_nodes=2000)
    certain = solve("waves", 1e-4, budget)
    unsure = integrate(doubtful, len(PARAMETERS), tolerance=1e-4, edges=EDGES, budget=budget)
    assert bool(certain.converged.all()) and not bool(unsure.converged.any())
    assert bool((unsure.error > 1e-4).all())


def test_pieces_are_as_long_as_the_mass_in_them_allows() -> None:
    """Nodes must lie close together where a narrow measure has its mass, and nowhere else."""
    density, below = gaussian(0.01)

    def hidden(start: Tensor, end: Tensor) -> Tensor:
        return (below(end) - below(start)) * (1 - 0.01 / (end - start)).clamp_min(0)

    def integrand(problem: Tensor, t: Tensor, start: Tensor, end: Tensor) -> NodeValues:
        mass = below(end) - below(start)
        return NodeValues(1 + 0.5 * torch.sin(200 * t), density(t), mass, hidden(start, end))

    def foresee(problem: Tensor, edges: Tensor) -> Tensor:
        looks = [edges[:, :: 32 // count] for count in (2, 4, 8, 16, 32)]
        return torch.cat([hidden(e[:, :-1], e[:, 1:]) for e in looks], 1)

    def solved(**how: Any) -> Integrals:
        return integrate(
            integrand, 1, tolerance=1e-3, edges=EDGES, budget=Budget(), keep_panels=True, **how
        )

    result = solved(foresee=foresee)
    truth = 1 + 0.5 * math.sin(80) * math.exp(-2)
    assert abs(float(result.value) - truth) <= float(result.error) <= 1e-3 * float(result.value)
    assert result.panels is not None
    lengths = result.panels.end - result.panels.start
    assert float(lengths[result.panels.mass > 0.01].max()) < 0.02
    assert float(lengths.max()) == 0.125
    assert torch.equal(result.panels.start[1:], result.panels.end[:-1])
    halved = solved()
    assert int(result.nodes) < int(halved.nodes)
    assert abs(float(halved.value) - truth) <= float(halved.error)


def test_a_budget_of_nodes_is_kept_and_its_error_honest() -> None:
    result = solve("waves", 1e-12, Budget(max_nodes=300))
    truth = CASES["waves"][1](PARAMETERS)
    assert int(result.nodes.max()) <= 300
    assert not bool(result.converged.all())
    assert torch.equal(result.converged, result.error <= 1e-12 * result.value)
    assert bool(((result.value - truth).abs() <= result.error + 1e-14).all())


def test_chunks_and_panels_respect_the_budget() -> None:
    sizes = []

    def comb(problem: Tensor, t: Tensor) -> Tensor:
        sizes.append(t.numel())
        return torch.sin(3000 * t).square()

    budget = Budget(chunk=300, panels=64)
    result = integrate(plain(comb), 50, tolerance=1e-6, edges=EDGES, budget=budget)
    assert bool(result.converged.all())
    assert max(sizes) <= 300
    assert int(result.nodes.sum()) == sum(sizes)
    assert bool((result.nodes == result.nodes[0]).all())


MEMORY = """
import resource, torch
from aem.conditionals.quadrature import Budget, NodeValues, integrate
torch.set_num_threads(1)
edges = torch.linspace(0, 1, 9, dtype=torch.float64)
def peak(problems):
    def comb(problem, t, start, end):
        waves = torch.sin(6000 * t + problem[:, None]).square()
        return NodeValues(waves, torch.ones_like(t), end - start, 0 * end)
    integrate(comb, problems, tolerance=1e-4, edges=edges, budget=Budget(chunk=2**12, panels=2**12))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
peak(1)
print(peak(8), peak(300))
"""


def test_memory_does_not_grow_with_the_problems() -> None:
    """300 combs of over 500 panels each: their panels together would take ten times the bound."""
    output = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    ).stdout
    few, many = map(int, output.split())
    assert many - few < 8 * 1024  # kilobytes


def test_nothing_to_do() -> None:
    result = integrate(
        plain(lambda p, t: t), 0, tolerance=1e-3, edges=EDGES, budget=Budget(), keep_panels=True
    )
    assert result.value.shape == (0,)
    assert result.panels is not None and len(result.panels) == 0
    zero = integrate(plain(lambda p, t: 0 * t), 2, tolerance=1e-3, edges=EDGES, budget=Budget())
    assert zero.value.tolist() == [0, 0]
    assert zero.nodes.tolist() == [8 * NODES_PER_PANEL] * 2
