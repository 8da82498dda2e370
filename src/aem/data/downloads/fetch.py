"""Data sets from the web: downloaded with progress, continued, verified, or not kept at all."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from aem.data.digest import content_sha256
from aem.data.downloads.transfer import DISK_FULL, ReportBytes, download
from aem.data.downloads.unpack import unpack
from aem.data.info import DataFile, Download, Source, data_root
from aem.data.registry import find, status
from aem.errors import AemError
from aem.extras import require


def fetch(name: str, root: str | Path | None = None) -> list[Path]:
    """Download a data set unless it is there and intact; return the paths of its files.

    Parameters
    ----------
    name
        name of the data set, as `aem data` lists it.
    root
        the folder of the data; AEM_DATA, or the user's cache, without one.
    """
    info, folder = find(name), data_root(root)
    source = status(name, folder).source
    if source is None or not all(_intact(file, folder) for file in source.files):
        source = info.fetchable
        if source is None:
            raise AemError(f"{name} has no public download: {info.how_to_get}")
        fetch_source(source, folder)
    return [folder / file.path for file in source.files]


def fetch_source(source: Source, folder: Path) -> None:
    """Download one source of a data set and unpack what is packed.

    Parameters
    ----------
    source
        the form of the data set that has downloads.
    folder
        the root of the data, which the paths of the source are relative to.
    """
    with _explaining_disk_errors(folder):
        for item in source.downloads:
            retrieve(item, folder)
            if item.unpack:
                unpack(folder / item.path, item.unpack, folder)


def retrieve(item: Download, folder: Path) -> None:
    """Bring one download to its place, which only a file with the right checksum ever gets to.

    Parameters
    ----------
    item
        the file of the web, with its checksum.
    folder
        the root of the data.
    """
    pooch = require("pooch", "fetching data", "data")
    pooch.get_logger().setLevel(logging.WARNING)  # the progress bar says what it would say
    target = folder / item.path
    part = target.with_name(f"{target.name}.part")

    def resume(url: str, output_file: str, _pooch: object) -> None:
        with _progress(target.name) as report:
            download(url, part, report)
        # From here on the bytes are pooch's: it verifies them, then moves or deletes them.
        part.replace(output_file)

    try:
        pooch.retrieve(
            url=item.url,
            known_hash=item.hash,
            fname=target.name,
            path=target.parent,
            downloader=resume,
        )
    except ValueError as error:
        raise AemError(
            f"{item.url} does not have its checksum {item.hash}, so it was discarded: {error}"
        ) from error


def _intact(file: DataFile, folder: Path) -> bool:
    if file.sha256 is None or not file.present(folder):
        return file.present(folder)
    try:
        return content_sha256(folder / file.path) == file.sha256
    except AemError:  # a truncated .gz has no content to speak of
        return False


@contextmanager
def _progress(name: str) -> Iterator[ReportBytes]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    # On stderr, so that what a command prints can be piped.
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def _explaining_disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            reason = "the disk is full, and no partial file was kept"
        else:
            reason = error.strerror or str(error)
        raise AemError(f"{error.filename or folder} cannot be written: {reason}") from error
