import gzip
import hashlib
import io
import re
import shutil
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from aem.data import registry
from aem.data.digest import content_sha256
from aem.data.downloads import transfer
from aem.data.downloads.fetch import fetch, fetch_source, retrieve
from aem.data.downloads.unpack import unpack
from aem.data.info import DataFile, Download, Source
from aem.errors import AemError

pytest.importorskip("pooch")

CONTENT = np.random.default_rng(0).bytes(1_000_000)
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@dataclass
class Server:
    """A web server on this machine that can be told to misbehave."""

    content: bytes = CONTENT
    knows_ranges: bool = True
    breaks_after: int | None = None
    starts: list[int] = field(default_factory=list)
    """The first byte of every answer it gave."""
    url: str = ""


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith("/file"):
                self.send_error(404)
                return
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(asked[1]) if asked and state.knows_ranges else 0
            total = len(state.content)
            if start >= total > 0:
                self.send_error(416)
                return
            state.starts.append(start)
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            self.send_header("Content-Length", str(total - start))
            self.end_headers()
            stop = total if state.breaks_after is None else start + state.breaks_after
            self.wfile.write(state.content[start:stop])

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{httpd.server_port}/file"
    yield state
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def files_under(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_file_arrives_under_its_name(server: Server, tmp_path: Path) -> None:
    retrieve(Download(server.url, SHA256, "set/file.bin"), tmp_path)
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT
    assert files_under(tmp_path) == ["set/file.bin"]


def test_file_with_its_checksum_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    item = Download(server.url, SHA256, "file.bin")
    retrieve(item, tmp_path)
    retrieve(item, tmp_path)
    assert server.starts == [0]


def test_damaged_file_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1])
    retrieve(Download(server.url, SHA256, "file.bin"), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_interrupted_transfer_is_continued(server: Server, tmp_path: Path) -> None:
    item = Download(server.url, SHA256, "file.bin")
    server.breaks_after = 400_000
    with pytest.raises(AemError, match="stopped after 400,000 of 1,000,000 bytes"):
        retrieve(item, tmp_path)
    assert files_under(tmp_path) == ["file.bin.part"]  # nothing a loader would trust
    server.breaks_after = None
    retrieve(item, tmp_path)
    assert server.starts == [0, 400_000]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert files_under(tmp_path) == ["file.bin"]


def test_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:300_000])
    server.knows_ranges = False
    retrieve(Download(server.url, SHA256, "file.bin"), tmp_path)
    assert server.starts == [0]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("surplus", [b"", b"more"])
def test_part_that_is_too_long_starts_over(server: Server, tmp_path: Path, surplus: bytes) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT + surplus)
    retrieve(Download(server.url, SHA256, "file.bin"), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"?"
    item = Download(server.url, SHA256, "file.bin")
    with pytest.raises(AemError, match=f"does not have its checksum {SHA256}"):
        retrieve(item, tmp_path)
    assert files_under(tmp_path) == []


def test_wrong_part_is_found_out_and_the_next_run_succeeds(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    item = Download(server.url, SHA256, "file.bin")
    with pytest.raises(AemError, match="does not have its checksum"):
        retrieve(item, tmp_path)
    retrieve(item, tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_wrong_checksum_keeps_the_file_that_was_there(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(b"older")
    server.content = b"neither"
    with pytest.raises(AemError, match="does not have its checksum"):
        retrieve(Download(server.url, SHA256, "file.bin"), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == b"older"


def test_refusal_is_reported(server: Server, tmp_path: Path) -> None:
    item = Download(server.url.replace("/file", "/gone"), SHA256, "file.bin")
    with pytest.raises(AemError, match="/gone answered 404"):
        retrieve(item, tmp_path)
    assert files_under(tmp_path) == []


def test_unreachable_server_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AemError, match=r"127\.0\.0\.1:9/file cannot be reached"):
        retrieve(Download("http://127.0.0.1:9/file", SHA256, "file.bin"), tmp_path)


def test_progress_is_reported(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    transfer.download(server.url, tmp_path / "part", lambda *step: seen.append(step))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert seen == sorted(seen)


def test_too_small_a_disk_is_reported_before_it_fills(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    source = Source((DataFile("file.bin"),), None, (Download(server.url, SHA256, "file.bin"),))
    with pytest.raises(AemError, match="the disk is full"):
        fetch_source(source, tmp_path)
    assert files_under(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is full")
def test_disk_that_fills_up_is_reported_and_gets_its_space_back(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "file.bin.part").symlink_to("/dev/full")
    source = Source((DataFile("file.bin"),), None, (Download(server.url, SHA256, "file.bin"),))
    with pytest.raises(AemError, match="cannot be written: the disk is full"):
        fetch_source(source, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_a_file_is_reported(server: Server, tmp_path: Path) -> None:
    (tmp_path / "root").write_text("")
    source = Source((DataFile("file.bin"),), None, (Download(server.url, SHA256, "file.bin"),))
    with pytest.raises(AemError, match="root"):
        fetch_source(source, tmp_path / "root")


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_archive_is_fetched_and_unpacked(server: Server, tmp_path: Path) -> None:
    server.content = tar_of({"data/HEPMASS/a.csv": b"a", "data/other/b": b"b"})
    sha256 = f"sha256:{hashlib.sha256(server.content).hexdigest()}"
    wanted = (("data/hepmass/a.csv", "data/hepmass/a.csv"),)
    item = Download(server.url, sha256, "archives/data.tar.gz", wanted)
    fetch_source(Source((DataFile("data/hepmass/a.csv"),), None, (item,)), tmp_path)
    assert files_under(tmp_path) == ["archives/data.tar.gz", "data/hepmass/a.csv"]
    assert (tmp_path / "data/hepmass/a.csv").read_bytes() == b"a"


def test_folders_are_unpacked_from_tar_and_zip(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(tar_of({"./B/images/train/1.jpg": b"1", "B/notes": b""}))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("B/images/test/2.jpg", b"2")
        archive.writestr("readme", b"")
    for name in ("a.tgz", "a.zip"):
        unpack(tmp_path / name, (("B/images/", "out/"),), tmp_path)
    assert files_under(tmp_path / "out") == ["test/2.jpg", "train/1.jpg"]


def test_archive_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(tar_of({"B/images/../../../evil": b""}))
    with pytest.raises(AemError, match="outside its folder"):
        unpack(tmp_path / "a.tgz", (("B/images/", "out/"),), tmp_path / "root")


def test_archive_without_the_member_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(tar_of({"data/x": b""}))
    with pytest.raises(AemError, match=r"a\.tgz does not contain data/y"):
        unpack(tmp_path / "a.tgz", (("data/y", "y"),), tmp_path)


def test_truncated_archive_leaves_no_half_a_file(tmp_path: Path) -> None:
    whole = tar_of({"data/y": CONTENT})
    (tmp_path / "a.tgz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AemError, match=r"a\.tgz is damaged"):
        unpack(tmp_path / "a.tgz", (("data/y", "y"),), tmp_path)
    assert files_under(tmp_path) == ["a.tgz"]


def test_data_set_that_is_present_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data" / "miniboone").mkdir(parents=True)
    path = tmp_path / "data" / "miniboone" / "data.npy"
    np.save(path, np.zeros((2, 43)))
    assert fetch("miniboone", tmp_path) == [path]


def test_data_set_without_a_download_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(AemError, match=r"gas-10k has no public download: .*gas_subset\.npz"):
        fetch("gas-10k", tmp_path)


def test_absent_pooch_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(AemError, match=r"pooch: pip install 'aem\[data\]'"):
        fetch("power", tmp_path)


def test_recompressed_gzip_counts_as_intact(tmp_path: Path) -> None:
    for level in (1, 9):
        (tmp_path / f"{level}.gz").write_bytes(gzip.compress(b"0123456789" * 1000, level))
    assert (tmp_path / "1.gz").read_bytes() != (tmp_path / "9.gz").read_bytes()
    assert content_sha256(tmp_path / "1.gz") == content_sha256(tmp_path / "9.gz")


def test_truncated_gzip_is_fetched_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.content = gzip.compress(CONTENT)
    packed, content = (hashlib.sha256(c).hexdigest() for c in (server.content, CONTENT))
    item = Download(server.url, f"sha256:{packed}", "file.gz")
    source = Source((DataFile("file.gz", sha256=content),), None, (item,))
    info = replace(registry.find("mnist"), sources=(source,))
    monkeypatch.setattr(registry, "_DATASETS", {"mnist": info})
    (tmp_path / "file.gz").write_bytes(server.content[:-100])
    assert fetch("mnist", tmp_path) == [tmp_path / "file.gz"]
    assert (tmp_path / "file.gz").read_bytes() == server.content


@pytest.mark.parametrize("info", registry.datasets(), ids=lambda info: str(info.name))
def test_downloads_lead_to_the_files(info: registry.DatasetInfo) -> None:
    for source in info.sources:
        targets = [download.path for download in source.downloads]
        targets += [path for download in source.downloads for _, path in download.unpack]
        for file in source.files if source.downloads else ():
            assert any(target.rstrip("/") == file.path for target in targets)
        for download in source.downloads:
            algorithm, digest = download.hash.split(":")
            assert len(digest) == 2 * hashlib.new(algorithm).digest_size
