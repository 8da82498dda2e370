"""Shape checks at run time, one thread, and the markers that decide what runs."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

torch.set_num_threads(1)  # results do not depend on the machine, and two workers do not fight


def check_shapes() -> None:
    """Check the jaxtyping annotations of every module that has some, in every call it makes.

    Must run before the first import of aem. An int will do where a float is asked for, as it does
    for static type checkers.
    """
    package = importlib.util.find_spec("aem")
    installed = all(importlib.util.find_spec(name) for name in ("jaxtyping", "beartype"))
    if package is None or package.origin is None or "aem" in sys.modules or not installed:
        return
    import jaxtyping

    importlib.import_module("beartype.typing")  # named in the checker below
    root = Path(package.origin).parent
    modules = [
        ".".join(("aem", *path.relative_to(root).with_suffix("").parts))
        for path in root.rglob("*.py")
        if "from jaxtyping import" in path.read_text(encoding="utf-8")
    ]
    # Beartype knows Self only where it decorates the whole class; the hook decorates each method.
    checker = (
        "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True, "
        "hint_overrides=beartype.FrozenDict({beartype.typing.Self: object})))"
    )
    jaxtyping.install_import_hook(modules, checker)


check_shapes()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run tests that take minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skips = {
        "gpu": (not torch.cuda.is_available(), "no CUDA device"),
        "slow": (not config.getoption("--run-slow"), "needs --run-slow"),
        "data": (not os.environ.get("AEM_DATA"), "AEM_DATA is not set"),
    }
    for item in items:
        for marker, (skipped, reason) in skips.items():
            if skipped and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same random numbers, alone or among others."""
    torch.manual_seed(0)


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """Return the root of the real data, or skip a test (marked `data`) whose data set is not there."""
    from aem.data import registry  # not before the shape checks

    def root_of(name: str) -> Path:
        root = Path(os.environ["AEM_DATA"])
        if not registry.status(name, root).present:
            pytest.skip(f"{name} is not under AEM_DATA")
        return root

    return root_of


@pytest.fixture
def randomise() -> Callable[[nn.Module], None]:
    """Random weights in every layer, for a fresh network has zeros that hide what they multiply."""

    @torch.no_grad()
    def fill(module: nn.Module) -> None:
        for parameter in module.parameters():
            width = parameter.shape[-1] if parameter.ndim > 1 else 1
            parameter.normal_(0, 1 / width**0.5)

    return fill


@pytest.fixture
def compiled_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often anything given to torch.compile was called; it compiles nothing."""
    calls = 0

    def compile_nothing(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return function(*arguments, **options)

        return counted

    monkeypatch.setattr(torch, "compile", compile_nothing)
    return lambda: calls
