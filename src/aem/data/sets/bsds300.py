"""BSDS300: grey 8×8 patches of natural pictures, with noise, without their mean.

`bsds300-maf` is the file MAF published. `bsds300` is drawn anew from the pictures by the same
recipe, for the published file does not say which patches it holds; scores on it carry that remark.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from aem.data.info import DataFile, DatasetInfo, Download, Source, SplitSizes
from aem.data.readers import refusing
from aem.data.sets.maf import maf_sources
from aem.data.splits import SymmetryMatrix, Table, TableSplits
from aem.errors import AemError
from aem.extras import require

Grey: TypeAlias = npt.NDArray[np.uint8]

SIDE: Final = 8
ROWS: Final = SplitSizes(1_000_000, 50_000, 250_000)
COLUMNS: Final = tuple(f"pixel_{i}_{j}" for i in range(SIDE) for j in range(SIDE))[:-1]

TRAIN_PICTURES: Final = 200
TEST_PICTURES: Final = 100
VALIDATION_PICTURES: Final = 20
_SEED: Final = 42


def read_pictures(folder: Path, expected: int) -> list[Grey]:
    """Read all JPEG files of a folder, in the order of their names, as whole grey levels.

    Parameters
    ----------
    folder
        the folder of pictures.
    expected
        how many there must be.
    """
    paths = sorted(folder.glob("*.jpg"))
    if len(paths) != expected:
        raise AemError(f"{folder} holds {len(paths)} pictures, expected {expected}")
    return [_read_grey(path) for path in paths]


def prepare(
    train: Sequence[Grey], test: Sequence[Grey], held_out: int, rows: SplitSizes = ROWS
) -> TableSplits:
    """Draw the splits from pictures.

    Parameters
    ----------
    train
        the training pictures, some of which are set aside for validation.
    test
        the test pictures.
    held_out
        how many training pictures validation has to itself.
    rows
        how many patches each split gets.
    """
    rng = np.random.default_rng(_SEED)
    validation = validation_pictures(len(train), held_out)
    rest = sorted(set(range(len(train))) - set(validation))
    return TableSplits(
        "bsds300",
        draw_patches([train[i] for i in rest], rows.train, rng),
        draw_patches([train[i] for i in validation], rows.validation, rng),
        draw_patches(test, rows.test, rng),
        COLUMNS,
        symmetries(),
    )


def validation_pictures(pictures: int, held_out: int) -> list[int]:
    """Return which pictures validate: some spread evenly over their order.

    Pictures differ so much that twenty drawn at random may be all of one kind, which the others
    lack.

    Parameters
    ----------
    pictures
        how many training pictures there are.
    held_out
        how many of them validate.
    """
    return [i * pictures // held_out for i in range(held_out)]


def symmetries() -> tuple[SymmetryMatrix, ...]:
    """The eight ways to mirror and turn a patch, then the same of its negative.

    The first one, two, four and eight are groups as well. The pixel that was dropped is minus the sum
    of the others.
    """
    pixels = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    mirrored = (pixels, pixels[:, ::-1], pixels[::-1], pixels[::-1, ::-1])
    complete = np.concatenate((np.eye(len(COLUMNS)), -np.ones((1, len(COLUMNS))))).astype(np.int64)
    turned = [complete[ways.ravel()][:-1] for ways in (*mirrored, *(ways.T for ways in mirrored))]
    return (*turned, *(-way for way in turned))


def draw_patches(pictures: Sequence[Grey], count: int, rng: np.random.Generator) -> Table:
    """Draw patches, equally many of each picture, at any position, in any order.

    The mean of a patch is subtracted, so its last pixel follows from the others and is dropped.

    Parameters
    ----------
    pictures
        grey pictures, none smaller than a patch.
    count
        how many patches.
    rng
        generator of the positions.
    """
    patches = np.empty((count, len(COLUMNS)), dtype=np.float32)
    places = np.array_split(rng.permutation(count), len(pictures))
    for picture, place in zip(pictures, places, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(picture, (SIDE, SIDE))
        down = rng.integers(windows.shape[0], size=len(place))
        across = rng.integers(windows.shape[1], size=len(place))
        grey = windows[down, across].reshape(len(place), SIDE * SIDE)
        level = (grey + rng.random(grey.shape)) / 256
        patches[place] = (level - level.mean(axis=1, keepdims=True))[:, :-1]
    return patches


def read_images(folder: Path) -> TableSplits:
    """Rebuild BSDS300 from the pictures in the folders train and test of the official archive."""
    return prepare(
        read_pictures(folder / "train", TRAIN_PICTURES),
        read_pictures(folder / "test", TEST_PICTURES),
        VALIDATION_PICTURES,
    )


def read_hdf5(path: Path) -> TableSplits:
    """Read the published file."""
    h5py = require("h5py", "reading BSDS300.hdf5", "data")
    with refusing(path, "BSDS300.hdf5"), h5py.File(path, "r") as file:
        train, validation, test = (
            np.asarray(file[split], dtype=np.float32) for split in ("train", "validation", "test")
        )
    return TableSplits("bsds300-maf", train, validation, test, COLUMNS, symmetries())


def _read_grey(path: Path) -> Grey:
    image_module = require("PIL.Image", "reading pictures", "data")
    with refusing(path, "a picture"), image_module.open(path) as picture:
        grey = np.asarray(picture.convert("L"))
    if min(grey.shape) < SIDE:
        raise AemError(f"{path} is {grey.shape[1]}×{grey.shape[0]}, too small for {SIDE}×{SIDE}")
    return grey


_PICTURES: Final = DataFile(
    "bsds300/images",
    sha256="55825503662b05aa6229130e800d1cc42a97ca2a04e2bcb54054551337fa0c5c",
    size=22_247_231,
    count=TRAIN_PICTURES + TEST_PICTURES,
)
_ARCHIVE: Final = Download(
    "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/segbench/"
    "BSDS300-images.tgz",
    hash="sha256:a5f7d0e49fe135c75518a3543ced24470156fd69305ae77845dff2a5138652b4",
    path="archives/BSDS300-images.tgz",
    unpack=(("BSDS300/images/", "bsds300/images/"),),
)
_LICENCE: Final = "research use, cite Martin et al. 2001"
_URL: Final = "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/bsds/"

DATASETS: Final = (
    DatasetInfo(
        name="bsds300",
        description="Patches of natural pictures, drawn anew from the pictures",
        rows=ROWS,
        columns=len(COLUMNS),
        licence=_LICENCE,
        url=_URL,
        sources=(Source((_PICTURES,), read_images, (_ARCHIVE,)),),
    ),
    DatasetInfo(
        name="bsds300-maf",
        description="Patches of natural pictures, as published by MAF",
        rows=ROWS,
        columns=len(COLUMNS),
        licence=_LICENCE,
        url=_URL,
        sources=maf_sources(read_hdf5, "BSDS300/BSDS300.hdf5"),
    ),
)
