"""The image task: a picture as a density on the unit square."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from aem.data.synthetic import Floats, PlaneTask, Samples
from aem.errors import AemError
from aem.extras import require

_LONGEST_SIDE: Final = 512


class ImageTask(PlaneTask):
    """A density proportional to the grey level of a picture, constant within each pixel.

    The picture is stretched over the unit square, and shrunk first where a side has more than
    512 pixels. The first coordinate runs to the right and the second upwards. Without a path it is
    the picture shipped with the package.

    Parameters
    ----------
    path
        a picture of any format that Pillow reads; the one that ships with the package without it.
    """

    name = "image"
    bounds = ((0.0, 1.0), (0.0, 1.0))

    def __init__(self, path: str | Path | None = None) -> None:
        picture = files("aem.data") / "pictures" / "astronaut.png" if path is None else Path(path)
        grey = _read_grey(picture)[::-1]  # rows of a picture run downwards, the coordinate upwards
        self._probability = grey / grey.sum()
        self._shape = np.array([grey.shape[1], grey.shape[0]])  # pixels across, pixels up
        with np.errstate(divide="ignore"):
            self._log_pixel_density = np.log(self._probability * grey.size)

    def entropy(self) -> float:
        """Return the entropy, an exact sum over the pixels."""
        lit = self._probability > 0
        return -float(self._probability[lit] @ self._log_pixel_density[lit])

    def _draw(self, n: int, rng: np.random.Generator) -> Samples:
        flat = rng.choice(self._probability.size, size=n, p=self._probability.ravel())
        pixels = np.stack(np.unravel_index(flat, self._probability.shape)[::-1], axis=1)
        points: Samples = ((pixels + rng.random((n, 2))) / self._shape).astype(np.float32)
        # Rounding to float32 takes about one row in 10⁵ over the edge of its pixel, perhaps to one
        # that is black: one float back towards the centre is inside again.
        centres = ((pixels + 0.5) / self._shape).astype(np.float32)
        strayed = self._pixels(points.astype(np.float64)) != pixels
        points[strayed] = np.nextafter(points[strayed], centres[strayed])
        return points

    def _log_density(self, rows: Floats) -> Floats:
        inside = ((rows >= 0) & (rows <= 1)).all(axis=1)
        across, up = self._pixels(rows.clip(0, 1)).T
        return np.where(inside, self._log_pixel_density[up, across], -np.inf)

    def _pixels(self, points: Floats) -> npt.NDArray[np.intp]:
        """Return (across, up) of each point's pixel; the closing edge at 1 is the last pixel's."""
        pixels: npt.NDArray[np.intp] = (points * self._shape).astype(np.intp)
        return pixels.clip(max=self._shape - 1)


def _read_grey(picture: Traversable) -> Floats:
    """Read grey levels, top row first; only their ratios matter."""
    image_module = require("PIL.Image", "reading a picture", "data")
    exif_transpose = require("PIL.ImageOps", "reading a picture", "data").exif_transpose
    try:
        with picture.open("rb") as file, image_module.open(file) as image:
            # Mode F, not L: L clips 16-bit greys to 255.
            upright = exif_transpose(image).convert("F")
    except FileNotFoundError as error:
        raise AemError(f"there is no image file at {picture}") from error
    except IsADirectoryError as error:
        raise AemError(f"{picture} is a folder, not an image file") from error
    # Pillow tells of a broken file in all of these ways, depending on the format.
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        raise AemError(f"{picture} cannot be read as an image") from error
    # A filter without negative lobes, for densities must not turn negative next to an edge.
    upright.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE), image_module.Resampling.BILINEAR)
    grey = np.asarray(upright, dtype=np.float64)
    if not (np.isfinite(grey).all() and grey.min() >= 0):
        raise AemError(f"{picture} has negative or non-finite pixels, so it is no density")
    if grey.max() == 0:
        raise AemError(f"{picture} is black all over, so it is no density")
    return grey
