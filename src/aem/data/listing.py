"""The rows of `aem data`, as plain data."""

from pathlib import Path
from typing import Any

from aem.data.info import DatasetInfo
from aem.data.registry import datasets, status

# A data set: name, description, rows, columns, licence, source, files (path, bytes, sha256),
# download_hashes, present, how_to_get. Checksums are those of `aem.data.digest`.
Entry = dict[str, Any]


def listing(root: str | Path | None = None) -> list[Entry]:
    """Describe every data set and whether it is under the root.

    Parameters
    ----------
    root
        the folder of the data; AEM_DATA, or the user's cache, without one.
    """
    return [_entry(info, root) for info in datasets()]


def _entry(info: DatasetInfo, root: str | Path | None) -> Entry:
    found = status(info.name, root).source
    shown = found or info.fetchable or info.sources[0]
    return {
        "name": info.name,
        "description": info.description,
        "rows": info.rows._asdict(),
        "columns": info.columns,
        "licence": info.licence,
        "source": info.url,
        "files": [{"path": f.path, "bytes": f.size, "sha256": f.sha256} for f in shown.files],
        "download_hashes": [download.hash for download in shown.downloads],
        "present": found is not None,
        "how_to_get": info.how_to_get,
    }
