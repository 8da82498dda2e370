"""Checks of the files that commands read and write, before the work begins."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from aem.base.console import STANDARD, detail
from aem.base.devices import choose_device
from aem.errors import AemError
from aem.tables.ensemble import TableEnsemble
from aem.tables.files import load_single, load_table
from aem.tables.model import TableModel

Table = TypeVar("Table", TableModel, TableEnsemble, TableModel | TableEnsemble)

WRITTEN = (".csv", ".tsv", ".parquet", ".json")


def load_any_model(path: Path, device: str) -> TableModel | TableEnsemble:
    """Load the model or ensemble in a file.

    Parameters
    ----------
    path
        what the user named; standard input is refused.
    device
        "auto", "cpu" or "cuda".
    """
    return _described(path, load_table(_file(path), choose_device(device)))


def load_table_model(path: Path, device: str) -> TableModel:
    """Load the single model in a file, for commands that need its conditionals.

    Parameters
    ----------
    path
        what the user named; standard input and ensembles are refused.
    device
        "auto", "cpu" or "cuda".
    """
    return _described(path, load_single(_file(path), choose_device(device)))


def _described(path: Path, table: Table) -> Table:
    detail(f"{path}: a model of {len(table.columns):,} columns")
    return table


def left_out_of(
    table: TableModel | TableEnsemble, drop: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the columns of an input file that are left out.

    Parameters
    ----------
    table
        the model, which knows what was left out of its fit.
    drop
        columns that the user names.

    Returns
    -------
    drop : sequence of str
        what the user named, which must be there.
    ignore : list of str
        what was left out of the fit, which may be there.
    """
    asked = drop or ()
    return asked, [name for name in table.left_out if name not in asked]


def _file(path: Path) -> Path:
    if str(path) == STANDARD:
        raise AemError("a model cannot be read from standard input: give the name of a file")
    return path


def check_output(out: str, *inputs: str | Path) -> None:
    """Refuse a name that no table can be written to, before the work begins.

    Parameters
    ----------
    out
        the file's name, or `STANDARD`.
    inputs
        the files that the command reads.
    """
    if out == STANDARD:
        return
    if Path(out).suffix.lower() not in WRITTEN:
        raise AemError(f"{out} is none of the kinds of table aem writes: {', '.join(WRITTEN)}")
    check_place(Path(out), *inputs)


def check_place(path: Path, *inputs: str | Path) -> None:
    """Refuse a path that cannot be written, or that is an input file, and leave nothing there.

    Parameters
    ----------
    path
        the file to write.
    inputs
        the files that the command reads.
    """
    if os.path.isdir(path):
        raise AemError(f"{path} is a folder, not a file to write to")
    if os.path.exists(path) and not os.path.isfile(path):
        raise AemError(f"{path} is not an ordinary file, and would be replaced by one")
    if any(_are_one_file(path, source) for source in inputs):
        raise AemError(f"{path} is what the command reads: write to another file")
    above = next(folder for folder in path.absolute().parents if os.path.exists(folder))
    if not above.is_dir():
        raise AemError(f"cannot write {path}: {above} is a file, not a folder")
    _rehearse(path, above)


def _are_one_file(path: Path, other: str | Path) -> bool:
    try:
        # `aem score m.aem - --out d.csv < d.csv` reads what it would replace.
        read = os.fstat(0) if str(other) == STANDARD else os.stat(other)
        return os.path.samestat(os.stat(path), read)
    except OSError:  # one of them is not there
        return False


def _rehearse(path: Path, above: Path) -> None:
    """Write an empty file of this name, and whatever folders it needs, and remove them again.

    Only that tells: permissions promise what a mounted disk may refuse, to an administrator above all.
    """
    try:
        with tempfile.TemporaryDirectory(dir=above, prefix=".aem-") as folder:
            trial = Path(folder) / path.absolute().relative_to(above)
            trial.parent.mkdir(parents=True, exist_ok=True)
            trial.touch()
    except OSError as error:
        raise AemError(f"cannot write {path}: {error.strerror}, in {above}") from error
