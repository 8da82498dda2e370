"""Chosen members of an archive, each put in its place whole or not at all."""

import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from aem.errors import AemError


def unpack(archive: Path, wanted: tuple[tuple[str, str], ...], root: Path) -> None:
    """Write members of an archive to their paths under the root, each whole or not at all.

    Parameters
    ----------
    archive
        a zip or tar file.
    wanted
        pairs of a member and its path, as in `aem.data.info.Download`.
    root
        the folder that those paths are relative to.
    """
    found = set()
    try:
        for name, content in _members(archive):
            for member, path in wanted:
                if (target := _target(name, member, path)) is not None:
                    _write(content, root / target)
                    found.add(member)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise AemError(f"{archive} is damaged: {error}") from error
    missing = ", ".join(member for member, _ in wanted if member not in found)
    if missing:
        raise AemError(f"{archive} does not contain {missing}")


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and content of all plain files; links and devices are passed over."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as bundle:
            for entry in bundle.infolist():
                if not entry.is_dir():
                    with bundle.open(entry) as content:
                        yield entry.filename, content
    else:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and (body := tar.extractfile(member)) is not None:
                    yield member.name, body


def _target(name: str, member: str, path: str) -> str | None:
    """Return the path for an entry of the archive, or None if it is not what `member` means.

    Names are compared from any folder on and without regard to case, for archives of the same data
    have differed in both.
    """
    entry, start = f"/{name}", f"/{name}".lower().find(f"/{member}".lower())
    if start < 0:
        return None
    rest = entry[start + 1 + len(member) :]
    if not member.endswith("/"):
        return path if not rest else None
    if ".." in PurePosixPath(rest).parts:
        raise AemError(f"the archive wants to write outside its folder, to {name}")
    return path + rest


def _write(content: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            shutil.copyfileobj(content, file)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
