"""MNIST: handwritten digits, from the four original IDX files."""

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from aem.data.info import DataFile, DatasetInfo, Download, Source, SplitSizes, data_root
from aem.data.readers import refusing
from aem.errors import AemError

Bytes: TypeAlias = npt.NDArray[np.uint8]

SIDE: Final = 28
ROWS: Final = SplitSizes(60_000, 0, 10_000)

_UNSIGNED_BYTES: Final = 0x08


@dataclass(frozen=True)
class Mnist:
    """Images of rows × 28 × 28 grey levels from 0 to 255, and the digits they show."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes


def load(root: str | Path | None = None) -> Mnist:
    """Read MNIST from the folder `mnist` under the root of the data.

    Parameters
    ----------
    root
        the folder of the data; AEM_DATA, or the user's cache, without one.
    """
    folder = data_root(root) / "mnist"
    train = read_pair(folder, "train", ROWS.train)
    test = read_pair(folder, "t10k", ROWS.test)
    return Mnist(*train, *test)


def read_pair(folder: Path, prefix: str, rows: int) -> tuple[Bytes, Bytes]:
    """Read the images and labels of one split.

    Parameters
    ----------
    folder
        the folder of the four files.
    prefix
        how the names of the split's files begin: "train" or "t10k".
    rows
        how many images and labels there must be.

    Returns
    -------
    images : array [N, 28, 28]
        grey levels from 0 to 255.
    labels : array [N]
        the digits that they show.
    """
    images = folder / f"{prefix}-images-idx3-ubyte.gz"
    labels = folder / f"{prefix}-labels-idx1-ubyte.gz"
    pair = read_idx(images, dimensions=3), read_idx(labels, dimensions=1)
    for path, array, expected in zip(
        (images, labels), pair, ((rows, SIDE, SIDE), (rows,)), strict=True
    ):
        if array.shape != expected:
            raise AemError(f"{path} holds an array of {array.shape}, expected {expected}")
    return pair


def read_idx(path: Path, dimensions: int) -> Bytes:
    """Read a gzipped IDX file of unsigned bytes.

    Its magic number is two zero bytes, the type and the number of dimensions; then comes each
    dimension as four bytes, then the values.

    Parameters
    ----------
    path
        the gzipped file.
    dimensions
        how many dimensions the array must have.
    """
    with refusing(path, "a gzipped IDX file"):
        content = gzip.decompress(path.read_bytes())
    magic = bytes([0, 0, _UNSIGNED_BYTES, dimensions])
    header = len(magic) + 4 * dimensions
    if content[:4] != magic:
        raise AemError(f"{path} begins with {content[:4].hex()}, expected {magic.hex()}")
    if len(content) < header:
        raise AemError(f"{path} ends after {len(content)} bytes, in its header of {header}")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    values = np.frombuffer(content, dtype=np.uint8, offset=header)
    if values.size != np.prod(shape, dtype=np.int64):
        raise AemError(f"{path} announces an array of {shape} but holds {values.size} values")
    return values.reshape(shape).copy()  # a view of bytes could not be written to


def _file(name: str, size: int, content: str, packed: str) -> tuple[DataFile, Download]:
    file = DataFile(f"mnist/{name}", sha256=content, size=size)
    url = f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}"
    return file, Download(url, f"sha256:{packed}", file.path)


_FILES: Final = (
    _file(
        "train-images-idx3-ubyte.gz",
        size=9_912_422,
        content="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        packed="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    _file(
        "train-labels-idx1-ubyte.gz",
        size=28_881,
        content="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        packed="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    _file(
        "t10k-images-idx3-ubyte.gz",
        size=1_648_877,
        content="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        packed="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    _file(
        "t10k-labels-idx1-ubyte.gz",
        size=4_542,
        content="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        packed="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)

DATASETS: Final = (
    DatasetInfo(
        name="mnist",
        description="Handwritten digits, images rather than a table",
        rows=ROWS,
        columns=SIDE * SIDE,
        licence="CC BY-SA 3.0",
        url="http://yann.lecun.com/exdb/mnist/",
        sources=(
            Source(
                tuple(file for file, _ in _FILES),
                read=None,
                downloads=tuple(download for _, download in _FILES),
            ),
        ),
    ),
)
