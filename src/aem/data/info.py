"""The description of a data set: sizes, licence, files and sources."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aem.data.splits import TableSplits


class SplitSizes(NamedTuple):
    """The number of rows of each split, as published."""

    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class DataFile:
    """A file, or a folder of `count` files, that a loader reads; paths are relative to the root."""

    path: str
    sha256: str | None = None
    """Of the content, see aem.data.digest; None where no copy was at hand to compute it."""
    size: int | None = None
    """In bytes."""
    count: int | None = None

    def present(self, root: Path) -> bool:
        """Tell whether the file, or every file of the folder, is there.

        Parameters
        ----------
        root
            the folder of the data.
        """
        path = root / self.path
        if self.count is None:
            return path.is_file()
        return path.is_dir() and sum(file.is_file() for file in path.rglob("*")) >= self.count


@dataclass(frozen=True)
class Download:
    """A download: its URL and checksum, where it is stored, and the files it contains."""

    url: str
    hash: str
    """As pooch writes it: the algorithm, a colon, the digest."""
    path: str
    unpack: tuple[tuple[str, str], ...] = ()
    """Pairs of a member of this archive and its path under the root; a folder ends in a slash."""


@dataclass(frozen=True)
class Source:
    """One of the forms in which a data set may be stored."""

    files: tuple[DataFile, ...]
    read: Callable[..., TableSplits] | None
    """Takes the paths of the files; None where the data set is no table."""
    downloads: tuple[Download, ...] = ()

    def present(self, root: Path) -> bool:
        """Tell whether all files are there.

        Parameters
        ----------
        root
            the folder of the data.
        """
        return all(file.present(root) for file in self.files)


@dataclass(frozen=True)
class DatasetInfo:
    """The description of a data set."""

    name: str
    description: str
    rows: SplitSizes
    columns: int
    licence: str
    url: str
    sources: tuple[Source, ...]
    """Best first: the first one present is read, the first one with downloads is fetched."""
    by_hand: str = ""
    """How to get it where there is nothing to download."""

    @property
    def fetchable(self) -> Source | None:
        """The source that can be downloaded, if there is one."""
        return next((source for source in self.sources if source.downloads), None)

    @property
    def how_to_get(self) -> str:
        """How to get the data set, as the end of a sentence."""
        return f"run `aem data fetch {self.name}`" if self.fetchable else self.by_hand


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of the data.

    Parameters
    ----------
    root
        the folder, where the caller names one; else AEM_DATA decides, else it is the user's cache.
    """
    chosen = root or os.environ.get("AEM_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "aem"
