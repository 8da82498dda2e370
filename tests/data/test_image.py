"""A picture as a density: upright, exact, and refused in one sentence where it is none."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from aem.data.image import ImageTask
from aem.errors import AemError

CENTRES_2X2 = [[0.25, 0.75], [0.75, 0.75], [0.25, 0.25], [0.75, 0.25]]  # as one reads a page


def saved(path: Path, pixels: npt.ArrayLike, dtype: npt.DTypeLike = np.uint8) -> Path:
    """Write the pixels, top row first, as a picture."""
    Image.fromarray(np.asarray(pixels, dtype=dtype)).save(path)
    return path


def densities(path: Path, rows: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return np.exp(ImageTask(path).log_prob(rows))


def test_picture_stands_upright(tmp_path: Path) -> None:
    path = saved(tmp_path / "page.png", [[10, 20], [30, 40]])
    np.testing.assert_allclose(densities(path, CENTRES_2X2), [0.4, 0.8, 1.2, 1.6])


def test_samples_stand_upright(tmp_path: Path) -> None:
    """Counts of four pixels; 4.5 standard errors make right code fail once in 37 thousand seeds."""
    n = 100_000
    right, up = ImageTask(saved(tmp_path / "page.png", [[10, 20], [30, 40]])).sample(n, seed=0).T
    for share, pixel in [
        (0.1, (right < 0.5) & (up > 0.5)),
        (0.2, (right > 0.5) & (up > 0.5)),
        (0.3, (right < 0.5) & (up < 0.5)),
        (0.4, (right > 0.5) & (up < 0.5)),
    ]:
        assert abs(pixel.mean() - share) < 4.5 * np.sqrt(share * (1 - share) / n)


def test_density_off_the_picture_and_on_black_is_zero(tmp_path: Path) -> None:
    path = saved(tmp_path / "bars.png", [[0, 255, 0]])
    rows = [[0.1, 0.5], [0.9, 0.5], [0.5, -0.1], [0.5, 1.1], [-0.5, 0.5], [1.5, 0.5]]
    assert (ImageTask(path).log_prob(rows) == -np.inf).all()
    np.testing.assert_allclose(densities(path, [[0.5, 0.0], [0.5, 0.5], [0.5, 1.0]]), 3)


@pytest.mark.parametrize(
    ("pixels", "entropy"),
    [
        ([[7, 7, 7]], 0.0),
        ([[0, 9], [9, 0]], -np.log(2)),
        ([[1, 3]], -(np.log(2 / 4) / 4 + 3 * np.log(6 / 4) / 4)),
    ],
)
def test_entropy_counts_the_area_of_pixels(
    tmp_path: Path, pixels: list[list[int]], entropy: float
) -> None:
    assert ImageTask(saved(tmp_path / "p.png", pixels)).entropy() == pytest.approx(entropy)


def test_samples_are_not_rounded_onto_black(tmp_path: Path) -> None:
    """Some ten of these rows would be, were float32 not minded."""
    across, up = np.indices((300, 301))
    task = ImageTask(saved(tmp_path / "fine.png", 255 * ((across + up) % 2)))
    assert np.isfinite(task.log_prob(task.sample(1_000_000, seed=1))).all()


def test_colours_count_by_luminance(tmp_path: Path) -> None:
    path = saved(tmp_path / "rgb.png", [[[255, 0, 0], [0, 255, 0]]])
    red, green = densities(path, [[0.25, 0.5], [0.75, 0.5]])
    assert red / green == pytest.approx(0.299 / 0.587)


def test_sixteen_bits_keep_their_ratios(tmp_path: Path) -> None:
    path = saved(tmp_path / "deep.png", [[1_000, 60_000]], dtype=np.uint16)
    dark, bright = densities(path, [[0.25, 0.5], [0.75, 0.5]])
    assert bright / dark == pytest.approx(60)


def test_camera_orientation_is_obeyed(tmp_path: Path) -> None:
    turned_over = Image.Exif()
    turned_over[0x0112] = 3
    picture = Image.fromarray(np.array([[10, 20], [30, 40]], dtype=np.uint8))
    picture.save(tmp_path / "photo.png", exif=turned_over)
    np.testing.assert_allclose(densities(tmp_path / "photo.png", CENTRES_2X2), [1.6, 1.2, 0.8, 0.4])


def test_large_pictures_are_shrunk_to_512_in_proportion(tmp_path: Path) -> None:
    noise = np.random.default_rng(2).integers(0, 256, (275, 550))
    path = saved(tmp_path / "large.png", noise)
    across, up = np.meshgrid((np.arange(512) + 0.5) / 512, (np.arange(256) + 0.5) / 256)
    pixels = densities(path, np.stack([across, up], axis=-1).reshape(-1, 2))
    assert pixels.mean() == pytest.approx(1, abs=1e-9)  # so these 512 × 256 are all the pixels
    assert len(np.unique(pixels)) > 100_000


def test_shrinking_averages(tmp_path: Path) -> None:
    stripes = np.tile([0, 255], (1024, 512))
    path = saved(tmp_path / "stripes.png", stripes)
    inner = np.random.default_rng(3).uniform(0.01, 0.99, (1000, 2))
    np.testing.assert_allclose(densities(path, inner), 1, atol=0.01)


def test_shipped_picture() -> None:
    task = ImageTask()
    assert task.bounds == ((0.0, 1.0), (0.0, 1.0))
    assert -1 < task.entropy() < 0
    helmet, wall = np.exp(task.log_prob([[0.75, 0.1], [0.3, 0.95]]))  # below right, above left
    assert helmet < 0.1 < 1 < wall


def test_a_picture_is_named_by_a_string_too(tmp_path: Path) -> None:
    path = saved(tmp_path / "p.png", [[1, 3]])
    assert ImageTask(str(path)).entropy() == ImageTask(path).entropy()


def write_nothing(path: Path) -> None:
    pass


def write_text(path: Path) -> None:
    path.write_text("x,y\n1,2\n")


def write_half_a_picture(path: Path) -> None:
    saved(path, np.random.default_rng(4).integers(0, 256, (64, 64)))
    path.write_bytes(path.read_bytes()[:2000])


def write_black(path: Path) -> None:
    saved(path, np.zeros((4, 4)))


def write_negative(path: Path) -> None:
    saved(path.with_suffix(".tiff"), [[-1.0, 1.0]], dtype=np.float32).rename(path)


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (write_nothing, "there is no image file at {path}"),
        (Path.mkdir, "{path} is a folder, not an image file"),
        (write_text, "{path} cannot be read as an image"),
        (write_half_a_picture, "{path} cannot be read as an image"),
        (write_black, "{path} is black all over, so it is no density"),
        (write_negative, "{path} has negative or non-finite pixels, so it is no density"),
    ],
)
def test_what_is_no_picture_is_refused(
    tmp_path: Path, write: Callable[[Path], None], complaint: str
) -> None:
    path = tmp_path / "picture.png"
    write(path)
    with pytest.raises(AemError) as refusal:
        ImageTask(path)
    assert str(refusal.value) == complaint.format(path=path)
