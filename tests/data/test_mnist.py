import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aem.data import registry
from aem.data.sets import mnist
from aem.data.sets.mnist import Bytes
from aem.errors import AemError

IMAGES = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
LABELS = np.array([7, 2, 1], dtype=np.uint8)


def write_idx(path: Path, array: Bytes) -> Path:
    magic = struct.pack(">I", 0x800 + array.ndim)
    content = magic + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content))
    return path


def write_pair(folder: Path, prefix: str) -> None:
    folder.mkdir(exist_ok=True)
    write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", IMAGES)
    write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", LABELS)


def test_images_and_labels_are_read(tmp_path: Path) -> None:
    write_pair(tmp_path, "train")
    images, labels = mnist.read_pair(tmp_path, "train", rows=3)
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)
    assert images.dtype == labels.dtype == np.uint8
    images[0] = 0  # would raise if the array were a view of bytes


def test_wrong_magic_number_is_refused(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "labels.gz", LABELS)
    with pytest.raises(AemError, match=r"labels\.gz begins with 00000801, expected 00000803"):
        mnist.read_idx(path, dimensions=3)


@pytest.mark.parametrize("surplus", [-1, 1])
def test_wrong_length_is_refused(tmp_path: Path, surplus: int) -> None:
    path = write_idx(tmp_path / "images.gz", IMAGES)
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:-1] if surplus < 0 else content + b"x"))
    with pytest.raises(AemError, match=rf"\(3, 28, 28\) but holds {IMAGES.size + surplus} values"):
        mnist.read_idx(path, dimensions=3)


def test_file_that_ends_in_its_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images.gz").write_bytes(gzip.compress(b"\0\0\x08\x03\0\0"))
    with pytest.raises(AemError, match=r"images\.gz ends after 6 bytes, in its header of 16"):
        mnist.read_idx(tmp_path / "images.gz", dimensions=3)


def test_truncated_gzip_is_refused(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "images.gz", IMAGES)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AemError, match=r"images\.gz is not a gzipped IDX file, or is damaged"):
        mnist.read_idx(path, dimensions=3)


def test_file_that_is_not_gzipped_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images.gz").write_bytes(b"<html>not found</html>")
    with pytest.raises(AemError, match=r"images\.gz is not a gzipped IDX file"):
        mnist.read_idx(tmp_path / "images.gz", dimensions=3)


def test_fewer_rows_than_published_are_refused(tmp_path: Path) -> None:
    write_pair(tmp_path / "mnist", "train")
    write_pair(tmp_path / "mnist", "t10k")
    with pytest.raises(AemError, match=r"\(3, 28, 28\), expected \(60000, 28, 28\)"):
        mnist.load(tmp_path)


def test_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(AemError, match=r"no file at .*train-images-idx3-ubyte\.gz"):
        mnist.load(tmp_path)


@pytest.mark.data
def test_real_mnist_has_its_sizes(real_data: Callable[[str], Path]) -> None:
    digits = mnist.load(real_data("mnist"))
    assert digits.train_images.shape == (60_000, 28, 28)
    assert digits.test_labels.shape == (10_000,)
    assert set(digits.train_labels.tolist()) == set(range(10))


def test_it_is_no_table(tmp_path: Path) -> None:
    write_pair(tmp_path / "mnist", "train")
    write_pair(tmp_path / "mnist", "t10k")
    with pytest.raises(AemError, match=r"no table: read it with aem\.data\.mnist\.load"):
        registry.load("mnist", tmp_path)
