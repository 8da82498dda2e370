"""The code in the documentation runs, and prints what is shown."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    """The script that writes the outputs is the one that checks them."""
    path = Path(__file__).resolve().parents[2] / "scripts" / "run_examples.py"
    spec = importlib.util.spec_from_file_location("run_examples", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


examples = _load()


@pytest.mark.parametrize("path", examples.pages(), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:sklearn")
def test_a_page_runs_and_shows_what_it_prints(path: Path) -> None:
    found = examples.run_page(path.read_text(encoding="utf-8"))
    assert found or "```text" not in path.read_text(encoding="utf-8")
    for example in found:
        assert example.shown.strip(), "an output is missing: python scripts/run_examples.py"
        assert examples.agree(example.shown, example.printed), (
            f"shown:\n{example.shown}\nprinted:\n{example.printed}\n"
            "if that is as it should be: python scripts/run_examples.py"
        )


def test_outputs_that_differ_are_told_apart() -> None:
    assert examples.agree("mean -16.31 nats\n", "mean  -16.30 nats")
    assert not examples.agree("mean 16.31 nats", "mean 19.31 nats")
    assert not examples.agree("row 3: hue", "row 3: alcohol")
