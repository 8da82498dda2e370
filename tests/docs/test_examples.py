"""The code in the documentation runs, and prints what is shown."""

from pathlib import Path

import pytest

from tools import examples

OPTIONAL = ("polars", "tensorboard")  # which the pages use and a user may lack


@pytest.mark.parametrize("path", examples.pages(), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:sklearn")
def test_a_page_runs_and_shows_what_it_prints(path: Path) -> None:
    try:
        found = examples.run_page(path.read_text(encoding="utf-8"))
    except ModuleNotFoundError as missing:
        if missing.name not in OPTIONAL:
            raise
        pytest.skip(f"{missing.name} is not installed")
    assert found or "```text" not in path.read_text(encoding="utf-8")
    for example in found:
        assert example.shown.strip(), "an output is missing: make examples"
        assert examples.agree(example.shown, example.printed), (
            f"shown:\n{example.shown}\nprinted:\n{example.printed}\n"
            "if that is as it should be: make examples"
        )


def test_outputs_that_differ_are_told_apart() -> None:
    assert examples.agree("mean -16.31 nats\n", "mean  -16.30 nats")
    assert not examples.agree("mean 16.31 nats", "mean 19.31 nats")
    assert not examples.agree("row 3: hue", "row 3: alcohol")
