"""Checksums of the content of files, independent of compression."""

import gzip
import hashlib
from io import BufferedReader
from pathlib import Path

from aem.data.readers import refusing


def content_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, of what a .gz file unpacks to, or of a folder.

    Mirrors compress the same .gz content differently, hence the content. A folder's digest runs
    over the lines "digest  name" of all files below it, in the order of their names.

    Parameters
    ----------
    path
        a file, or a folder, all files of which count.
    """
    if path.is_dir():
        files = {file.relative_to(path).as_posix(): file for file in path.rglob("*")}
        lines = [
            f"{content_sha256(file)}  {name}\n"
            for name, file in sorted(files.items())
            if file.is_file()
        ]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with refusing(path, "a readable file"), _open(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: Path) -> BufferedReader | gzip.GzipFile:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")
