"""One file over HTTP, continued where an earlier attempt stopped."""

import errno
import re
import shutil
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Final, TypeAlias, cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from aem.errors import AemError

ReportBytes: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes at hand and, where the server tells, the bytes in all."""

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_CHUNK: Final = 2**18
_TIMEOUT: Final = 60.0


def download(url: str, part: Path, report: ReportBytes) -> None:
    """Make `part` the whole of `url`, keeping the bytes that it has already.

    An interrupted transfer leaves `part` to be continued; a full disk gets its space back. Whether
    the bytes are the right ones is for a checksum to say.

    Parameters
    ----------
    url
        the file of the web.
    part
        the file that grows; what it holds already is kept.
    report
        called with the bytes at hand and, where the server tells, the bytes in all.
    """
    response, have = _open(url, part)
    with response:
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        if total is not None and shutil.disk_usage(part.parent).free < total - have:
            raise OSError(errno.ENOSPC, "too little space for the download", str(part))
        try:
            with part.open("ab" if have else "wb") as file:
                for chunk in _chunks(response, url):
                    file.write(chunk)
                    have += len(chunk)
                    report(have, total)
        except OSError as error:
            if error.errno in DISK_FULL:
                part.unlink()
            raise
    if total is not None and have != total:
        raise AemError(_stopped(url, f"after {have:,} of {total:,} bytes"))


def _open(url: str, part: Path) -> tuple[HTTPResponse, int]:
    """Ask for what is missing; return the response and the byte that it begins at."""
    have = part.stat().st_size if part.exists() else 0
    if have:
        try:
            response = _request(url, {"Range": f"bytes={have}-"})
        except HTTPError as error:
            if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise _refused(url, error) from error
        else:
            begins = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if response.status == HTTPStatus.OK:
                return response, 0  # the server does not know ranges and sends all of it
            if begins and int(begins[1]) == have:
                return response, have
            response.close()
    try:
        return _request(url, {}), 0
    except HTTPError as error:
        raise _refused(url, error) from error


def _request(url: str, headers: dict[str, str]) -> HTTPResponse:
    # Ranges count the bytes of the file only if nobody compresses it on the way.
    request = Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "aem", **headers})
    try:
        return cast(HTTPResponse, urlopen(request, timeout=_TIMEOUT))
    except HTTPError:
        raise
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise AemError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from error


def _chunks(response: HTTPResponse, url: str) -> Iterator[bytes]:
    """Read the body; what the network raises here must not pass for an error of the disk."""
    while True:
        try:
            chunk = response.read(_CHUNK)
        except (HTTPException, OSError) as error:
            raise AemError(_stopped(url, f"({error})")) from error
        if not chunk:
            return
        yield chunk


def _stopped(url: str, where: str) -> str:
    return f"the transfer of {url} stopped {where}: fetch again to continue it"


def _refused(url: str, error: HTTPError) -> AemError:
    return AemError(f"{url} answered {error.code} {error.reason}")
