"""What all commands have in common: interruptions, help, the version."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aem
from aem.base.console import set_verbosity
from aem.base.display import ProgressDisplay
from aem.cli.app import COMMANDS, flowing, load
from tests.support.running import GOOD, run


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


def test_a_warning_is_printed_even_if_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(1000, 2))
    np.save("rows.npy", np.column_stack((rows, rows.sum(1))))
    assert run(monkeypatch, "fit", "rows.npy", "--out", "m.aem", "--quiet") == 0
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith("aem: column 'x3' follows almost exactly from the columns before it")
    assert said.err.count("\n") == 1


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


PATHS = [[], ["fit"], ["data"], ["data", "fetch"], ["reproduce"], ["reproduce", "spirals"]]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_has_a_short_name_everywhere(
    path: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for option in ("-h", "--help"):
        assert run(monkeypatch, *path, option) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and "--help" in said[0]


def commands(group: Any) -> Iterator[Any]:
    for command in getattr(group, "commands", {}).values():
        yield from commands(command)
    if not hasattr(group, "commands"):
        yield group


@pytest.mark.parametrize("name", COMMANDS)
def test_common_options_are_the_same_for_all_commands(name: str) -> None:
    for command in commands(load(name)):
        options = {opt: parameter for parameter in command.params for opt in parameter.opts}
        assert {"--threads", "--quiet", "-q", "--verbose", "-v"} <= set(options)
        assert options["--quiet"].help == "Print only results, warnings and errors."
        assert options["--verbose"].help == "Print details, too, on standard error."


def test_quiet_and_verbose(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    GOOD.to_csv("labelled.csv")
    label = "aem: labelled.csv: its column without a name was taken for row labels and left out\n"
    score = ("score", "wine.aem", "labelled.csv")
    assert run(monkeypatch, *score) == 0
    usual = capsys.readouterr()
    assert usual.err == label
    assert run(monkeypatch, *score, "--quiet") == 0
    assert capsys.readouterr() == (usual.out, "")
    assert run(monkeypatch, *score, "--verbose") == 0
    verbose = capsys.readouterr()
    assert verbose.out == usual.out
    said = ["wine.aem: a model of 3 columns", label.strip("aem:\n "), "read 30 rows × 3 columns"]
    assert all(any(part in line for line in verbose.err.splitlines()) for part in said)
    assert "aem: took " in verbose.err
    assert run(monkeypatch, *score) == 0
    assert capsys.readouterr().err == label, "what one command was told holds for it alone"
    assert run(monkeypatch, *score, "-q", "-v") == 2
    assert capsys.readouterr().err == "aem: --quiet and --verbose exclude each other\n"
    assert run(monkeypatch, "score", "wine.aem", "none.csv", "-q") == 2
    assert "there is no file none.csv" in capsys.readouterr().err


def test_quiet_work_shows_no_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aem.base.display.SECONDS_BETWEEN_LINES", -1.0)
    for quiet in (False, True):
        set_verbosity(quiet=quiet)
        with ProgressDisplay() as progress:
            progress("rows", 1, 2)
        assert bool(capsys.readouterr().err) is not quiet
    set_verbosity()


def test_many_discrete_columns_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for width in (8, 9):
        rows = np.random.default_rng(0).poisson(3, size=(50, width))
        np.savetxt("t.csv", rows, "%d", ",", header=",".join("abcdefghi"[:width]), comments="")
        fit = ("fit", "t.csv", "--out", "m.aem", "--components", "1")
        assert run(monkeypatch, *fit) == 0
        said = capsys.readouterr().out
        assert said.count("is discrete (whole numbers)") == (8 if width == 8 else 0)
    assert (
        "9 columns ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', …) are discrete: their densities are "
        "the probability of a value divided by the column's step; --verbose says more.\n"
    ) in said
    assert run(monkeypatch, *fit, "--verbose") == 0
    assert capsys.readouterr().out.count("is discrete (whole numbers)") == 9
