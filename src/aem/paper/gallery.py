"""The figure rows of the plane tasks, one below the other (the paper's figure 4a)."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from aem.base.files import write_atomically

ROWS = ("spirals", "image", "diamond", "checkerboard")
WIDTH = 1400


def stack_rows(paths: Sequence[Path], out: Path) -> None:
    """Write one picture of all rows, as wide as a page."""
    pictures = []
    for path in paths:
        picture = Image.open(path).convert("RGB")
        height = round(picture.height * WIDTH / picture.width)
        pictures.append(picture.resize((WIDTH, height), Image.Resampling.LANCZOS))
    gallery = Image.new("RGB", (WIDTH, sum(p.height for p in pictures)), "white")
    top = 0
    for picture in pictures:
        gallery.paste(picture, (0, top))
        top += picture.height
    buffer = io.BytesIO()
    gallery.quantize(256).save(buffer, format="png", optimize=True)
    write_atomically(out, buffer.getvalue())
