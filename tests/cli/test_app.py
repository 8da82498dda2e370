"""What all commands have in common: interruptions, help, the version."""

from pathlib import Path

import numpy as np
import pytest

import aem
from aem.cli.app import COMMANDS, flowing, load
from tests.support.running import run


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("aem.cli.app.run", "aem: interrupted\n"),  # as while modules are imported
        ("aem.cli.fit.read_input", "aem: interrupted\n"),
        ("aem.tables.fit.mixtures.fit_mixture", "aem: interrupted\n"),
        ("aem.tables.fit.automatic.train_networks", "aem: interrupted after mixture: 1 of 1\n"),
    ],
)
def test_an_interruption_is_one_sentence_and_130(
    where: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(0).normal(size=(200, 2)))
    fit = ("fit", "rows.npy", "--out", "m", "--components", "1", "--steps", "2", "--hidden", "4")
    monkeypatch.setattr(where, interrupt)
    assert run(monkeypatch, *fit) == 130
    assert capsys.readouterr().err == said
    assert not Path("m").exists()


def test_help_flows() -> None:
    text = """First line
    goes on.

    Second paragraph,
    too.
    """
    assert flowing(text) == "First line goes on.\n\nSecond paragraph, too."


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"aem {aem.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    assert load(name).help.partition("\n")[0] == COMMANDS[name][1]
