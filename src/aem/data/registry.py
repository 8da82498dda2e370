"""All data sets by name: their descriptions, whether their files are present, and their splits."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aem.data.info import DataFile, DatasetInfo, Source, SplitSizes, data_root
from aem.data.sets import bsds300, gas, hepmass, miniboone, mnist, power
from aem.data.splits import TableSplits
from aem.errors import AemError

__all__ = ["DatasetInfo", "Status", "check_sizes", "datasets", "find", "load", "status"]

_DATASETS: Final[dict[str, DatasetInfo]] = {
    info.name: info
    for module in (power, gas, hepmass, miniboone, bsds300, mnist)
    for info in module.DATASETS
}


@dataclass(frozen=True)
class Status:
    """Whether a data set is present under a root."""

    source: Source | None
    """The one that would be read."""
    missing: tuple[DataFile, ...]
    """What the best source lacks; empty if any source is complete."""

    @property
    def present(self) -> bool:
        """Whether it can be loaded."""
        return self.source is not None


def datasets() -> list[DatasetInfo]:
    """Return every data set, in the order of the documentation."""
    return list(_DATASETS.values())


def find(name: str) -> DatasetInfo:
    """Return the description of a data set.

    Parameters
    ----------
    name
        as `aem data` lists it.
    """
    if name not in _DATASETS:
        raise AemError(f"unknown data set {name!r}; known: {', '.join(_DATASETS)}")
    return _DATASETS[name]


def status(name: str, root: str | Path | None = None) -> Status:
    """Look for the files of a data set.

    Parameters
    ----------
    name
        as `aem data` lists it.
    root
        the folder of the data; AEM_DATA, or the user's cache, without one.
    """
    info, folder = find(name), data_root(root)
    for source in info.sources:
        if source.present(folder):
            return Status(source, ())
    best = info.fetchable or info.sources[0]
    return Status(None, tuple(file for file in best.files if not file.present(folder)))


def present_source(name: str, root: str | Path | None = None) -> Source:
    """Return the source of a data set to read, or say what is missing and how to get it.

    Parameters
    ----------
    name
        as `aem data` lists it.
    root
        the folder of the data; AEM_DATA, or the user's cache, without one.
    """
    found = status(name, root)
    if found.source is None:
        missing = ", ".join(file.path for file in found.missing)
        advice = find(name).how_to_get
        raise AemError(f"{name} is not under {data_root(root)}, which lacks {missing}: {advice}")
    return found.source


def load(name: str, root: str | Path | None = None) -> TableSplits:
    """Read and prepare a data set and check it against its published sizes.

    Parameters
    ----------
    name
        as `aem data` lists it.
    root
        the folder of the data; AEM_DATA, or the user's cache, without one.
    """
    info, folder, source = find(name), data_root(root), present_source(name, root)
    if source.read is None:
        raise AemError(f"{name} is no table: read it with aem.data.{name}.load")
    splits = source.read(*(folder / file.path for file in source.files))
    check_sizes(splits, info.rows, info.columns)
    return splits


def check_sizes(splits: TableSplits, rows: SplitSizes, columns: int) -> None:
    """Compare a prepared data set with its published sizes.

    Parameters
    ----------
    splits
        the data set as it was read.
    rows
        how many rows each split should have.
    columns
        how many columns they should have.
    """
    found = SplitSizes(len(splits.train), len(splits.validation), len(splits.test))
    if found != rows or len(splits.columns) != columns:
        raise AemError(
            f"{splits.name} came out as {_sizes(found, len(splits.columns))}, "
            f"expected {_sizes(rows, columns)}: its files are not the published ones"
        )


def _sizes(rows: SplitSizes, columns: int) -> str:
    return f"{' / '.join(f'{n:,}' for n in rows)} rows of {columns} columns"
