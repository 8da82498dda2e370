"""What `pip install aem` brings is enough for tables; the rest is asked for when it is missing."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aem import TableModel

OPTIONAL = ("matplotlib", "PIL", "tensorboard", "pandas", "polars", "pooch", "h5py")
KEPT = Path(__file__).parent / "kept" / "0.1"


def program(
    folder: Path, *arguments: str, missing: tuple[str, ...] = (), after: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `aem` as if some packages were not installed, and Python after it."""
    script = f"""
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *where: (
    None if name.partition(".")[0] in {missing} else find(name, *where)
)
sys.argv = ["aem", *{arguments}]
from aem.cli import main
try:
    main()
finally:
    {after or "pass"}
"""
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "AEM_DATA": str(folder)},  # a data set that is there needs no download
    )  # fmt: skip


def test_a_table_needs_no_extra(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b", comments="")
    for arguments in (
        ("fit", "rows.csv", "--out", "rows.aem", "--device", "cpu"),
        ("score", "rows.aem", "rows.csv", "--out", "scores.csv"),
        ("sample", "rows.aem", "-n", "3", "--out", "drawn.csv"),
        ("report", "rows.aem", "rows.csv", "--out", "report.html"),
        ("data",),
    ):
        ended = program(tmp_path, *arguments, missing=OPTIONAL)
        assert ended.returncode == 0, ended.stderr


def test_scoring_loads_neither_trainer_nor_paper(tmp_path: Path) -> None:
    model = TableModel.load(KEPT / "small.aem")
    np.savetxt(
        tmp_path / "rows.csv", model.sample(5, 0), delimiter=",",
        header=",".join(model.columns), comments="",
    )  # fmt: skip
    unwanted = ("aem.paper", "aem.vae", "aem.training", "matplotlib", "PIL", "tensorboard")
    ended = program(
        tmp_path, "score", str(KEPT / "small.aem"), "rows.csv", "--out", "scores.csv",
        after=f"print('loaded', *(name for name in {unwanted} if name in sys.modules))",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "loaded"


def test_help_does_not_load_torch(tmp_path: Path) -> None:
    ended = program(tmp_path, "--help", missing=("torch", "numpy"))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("matplotlib", "paper", ("reproduce", "spirals", "--preset", "fast")),
        ("PIL", "paper", ("reproduce", "--help")),
        ("pooch", "data", ("data", "fetch", "power")),
    ],
)
def test_a_missing_extra_is_named(
    package: str, extra: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    ended = program(tmp_path, *arguments, missing=(package,))
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"needs the package {package}: pip install 'aem[{extra}]'" in ended.stderr
