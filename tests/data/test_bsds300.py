import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aem.data import registry
from aem.data.info import SplitSizes
from aem.data.sets import bsds300
from aem.data.sets.bsds300 import Grey
from aem.errors import AemError
from aem.paper.tables.config import table_experiment


def made_up_pictures(n: int, height: int = 12, width: int = 17) -> list[Grey]:
    """Return pictures whose grey levels count their pixels."""
    pattern = np.arange(height * width, dtype=np.uint8).reshape(height, width)
    return [pattern + np.uint8(i) for i in range(n)]


def test_patches_are_windows_with_noise_and_without_their_mean() -> None:
    (picture,) = made_up_pictures(1)
    patches = bsds300.draw_patches([picture], 500, np.random.default_rng(0)).astype(np.float64)
    assert patches.shape == (500, 63)
    whole = np.hstack([patches, -patches.sum(axis=1, keepdims=True)]) * 256
    windows = np.lib.stride_tricks.sliding_window_view(picture.astype(float), (8, 8))
    windows = windows.reshape(-1, 64)
    centred = windows - windows.mean(axis=1, keepdims=True)
    # The noise less its mean lies within (−1, 1): some window must be that near to every patch.
    distance = np.abs(whole[:, None] - centred[None]).max(axis=2).min(axis=1)
    assert distance.max() < 1
    assert distance.min() > 0


def test_symmetries_are_those_of_the_pictures() -> None:
    """A mirrored, turned or inverted patch is a patch of such a picture."""
    rng = np.random.default_rng(0)
    level = rng.random((5, 8, 8))
    level -= level.mean((1, 2), keepdims=True)

    def table(patches: np.ndarray) -> np.ndarray:
        return patches.reshape(-1, 64)[:, :-1]

    found = [table(level) @ s.T for s in bsds300.symmetries()]
    sideways, upside_down = level[:, :, ::-1], level[:, ::-1]
    expected = [level, sideways, upside_down, sideways[:, ::-1]]
    expected += [np.rot90(level, turns, (1, 2)) for turns in (1, 3)]
    expected += [level.transpose(0, 2, 1), np.rot90(level.transpose(0, 2, 1), 2, (1, 2))]
    assert len(found) == len({s.tobytes() for s in bsds300.symmetries()}) == 16
    for patches in (*expected, *(-patches for patches in expected)):
        assert any(np.allclose(table(patches), f) for f in found)
    np.testing.assert_allclose(found[0], table(level))
    np.testing.assert_allclose(found[1], table(sideways))


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_the_first_symmetries_are_a_group(count: int) -> None:
    some = [s.tobytes() for s in bsds300.symmetries()[:count]]
    for a in bsds300.symmetries()[:count]:
        for b in bsds300.symmetries()[:count]:
            assert (a @ b).tobytes() in some


def test_every_offset_can_be_drawn() -> None:
    picture = np.zeros((9, 10), dtype=np.uint8)
    picture[0, 0] = picture[8, 9] = 255
    patches = bsds300.draw_patches([picture], 200, np.random.default_rng(0))
    assert (patches[:, 0] > 0.5).any()  # the first corner
    assert (-patches.sum(axis=1) > 0.5).any()  # the last one, in the pixel that is dropped


def test_patches_are_spread_evenly_over_pictures_and_mixed() -> None:
    flat = np.full((8, 8), 100, dtype=np.uint8)
    steep = np.tile(np.arange(0, 80, 10, dtype=np.uint8), (8, 1))
    patches = bsds300.draw_patches([flat, steep, flat, steep], 1001, np.random.default_rng(0))
    is_steep = patches.std(axis=1) > 0.05
    assert abs(is_steep.sum() - 500) <= 1
    assert 0 < is_steep[:50].sum() < 50


def test_the_draw_is_repeatable_and_separates_pictures() -> None:
    train, test = made_up_pictures(10), made_up_pictures(4)
    rows = SplitSizes(80, 20, 40)
    first = bsds300.prepare(train, test, held_out=2, rows=rows)
    second = bsds300.prepare(train, test, held_out=2, rows=rows)
    assert (len(first.train), len(first.validation), len(first.test)) == rows
    for split in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(first, split), getattr(second, split))


def test_validation_pictures_are_not_trained_on() -> None:
    flat = np.full((8, 8), 100, dtype=np.uint8)
    marked = [flat.copy() for _ in range(10)]
    for i, picture in enumerate(marked):
        picture.flat[i] = 255
    splits = bsds300.prepare(marked, marked, held_out=3, rows=SplitSizes(700, 300, 100))
    seen = {int(i) for i in splits.train.argmax(axis=1)}
    held_out = {int(i) for i in splits.validation.argmax(axis=1)}
    assert held_out == {0, 3, 6}
    assert seen == set(range(10)) - held_out


def test_pictures_are_read_as_luminance(tmp_path: Path) -> None:
    Image.new("RGB", (20, 10), (200, 100, 50)).save(tmp_path / "b.jpg", quality=100)
    Image.new("L", (20, 10), 7).save(tmp_path / "a.jpg", quality=100)
    first, second = bsds300.read_pictures(tmp_path, expected=2)
    assert first.shape == (10, 20)
    assert abs(int(first[0, 0]) - 7) <= 1
    assert abs(int(second[0, 0]) - round(0.299 * 200 + 0.587 * 100 + 0.114 * 50)) <= 1


def test_missing_pictures_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "bsds300" / "images"
    for split in ("train", "test"):
        (folder / split).mkdir(parents=True)
        Image.new("L", (20, 10)).save(folder / split / "1.jpg")
    with pytest.raises(AemError, match="train holds 1 pictures, expected 200"):
        bsds300.read_images(folder)
    assert not registry.status("bsds300", tmp_path).present


def test_truncated_picture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.jpg"
    noise = np.random.default_rng(0).integers(256, size=(64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(AemError, match=r"1\.jpg is not a picture, or is damaged"):
        bsds300.read_pictures(tmp_path, expected=1)


def test_small_picture_is_refused(tmp_path: Path) -> None:
    Image.new("L", (7, 20)).save(tmp_path / "1.jpg")
    with pytest.raises(AemError, match=r"1\.jpg is 7×20, too small"):
        bsds300.read_pictures(tmp_path, expected=1)


def write_hdf5(path: Path, columns: int = 63) -> Path:
    h5py = pytest.importorskip("h5py")
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for rows, split in enumerate(("train", "validation", "test"), start=2):
            file[split] = np.full((rows, columns), rows, dtype=np.float32)
    return path


def test_published_file_is_taken_as_it_is(tmp_path: Path) -> None:
    splits = bsds300.read_hdf5(write_hdf5(tmp_path / "BSDS300.hdf5"))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (2, 3, 4)
    assert (splits.test == 4).all()


def test_published_file_of_other_sizes_is_refused(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "data" / "BSDS300" / "BSDS300.hdf5")
    with pytest.raises(AemError, match=r"2 / 3 / 4 rows .* 1,000,000 / 50,000 / 250,000 rows"):
        registry.load("bsds300-maf", tmp_path)
    write_hdf5(path, columns=64)
    with pytest.raises(AemError, match=r"\(2, 64\).* 63 columns"):
        registry.load("bsds300-maf", tmp_path)


def test_broken_hdf5_is_refused(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "BSDS300.hdf5")
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(AemError, match=r"BSDS300\.hdf5"):
        bsds300.read_hdf5(path)
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["train"] = np.zeros((2, 63))
    with pytest.raises(AemError, match=r"BSDS300\.hdf5.*validation"):
        bsds300.read_hdf5(path)


def test_absent_h5py_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(AemError, match=r"h5py: pip install 'aem\[data\]'"):
        bsds300.read_hdf5(tmp_path / "BSDS300.hdf5")


@pytest.mark.data
def test_real_bsds300_has_its_sizes(real_data: Callable[[str], Path]) -> None:
    splits = registry.load("bsds300", real_data("bsds300"))
    assert splits.train.dtype == np.float32
    assert np.abs(splits.train).max() < 1
    smallest = table_experiment("bsds300", "paper").model.min_scale * splits.train.std()
    assert smallest == pytest.approx(1e-3, rel=1e-2), "the paper's, in its units"


@pytest.mark.data
def test_real_published_file_has_its_sizes(real_data: Callable[[str], Path]) -> None:
    registry.load("bsds300-maf", real_data("bsds300-maf"))
