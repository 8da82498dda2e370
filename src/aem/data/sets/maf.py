"""The archive that the authors of masked autoregressive flows published with their code.

Unpacked under the root of the data it makes a folder `data`; a copy of that folder's content in
the root itself is found as well.
"""

from collections.abc import Callable
from typing import Final

from aem.data.info import DataFile, Download, Source
from aem.data.splits import TableSplits

URL: Final = "https://zenodo.org/records/1161203/files/data.tar.gz"
HASH: Final = "md5:9b9c9b0375315ad270eba4ce80c093ab"  # Zenodo publishes no other


def maf_sources(read: Callable[..., TableSplits], *members: str) -> tuple[Source, ...]:
    """Return the places where files of MAF's archive may lie, the unpacked archive first.

    Parameters
    ----------
    read
        the function that makes splits of the files.
    members
        paths of the files in the archive.
    """
    unpacked = tuple((f"data/{member}", f"data/{member}") for member in members)
    archive = Download(URL, HASH, path="archives/maf-data.tar.gz", unpack=unpacked)
    return (
        Source(tuple(DataFile(f"data/{member}") for member in members), read, (archive,)),
        Source(tuple(DataFile(member) for member in members), read),
    )
