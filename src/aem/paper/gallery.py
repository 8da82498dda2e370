"""The figure rows of the plane tasks, one below the other (the paper's figure 4a)."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from aem.base.files import read_json, write_atomically
from aem.paper.plane.picture import Picture, draw_row
from aem.paper.plots import as_png

ROWS = ("spirals", "image", "diamond", "checkerboard")
WIDTH = 1400


def row_of(results: Path, task: str) -> bytes:
    """Return the row of a task with the paper's settings, drawn from its record, as a PNG.

    Parameters
    ----------
    results
        the folder of results.
    task
        one of `ROWS`.
    """
    record = read_json(results / task / "paper.json")
    return as_png(draw_row(Picture.load(results / task / "paper.npz"), record))


def stack_rows(rows: Sequence[bytes], out: Path) -> None:
    """Write one picture of all rows, as wide as a page.

    Parameters
    ----------
    rows
        PNGs, from top to bottom.
    out
        the PNG to write.
    """
    pictures = []
    for row in rows:
        picture = Image.open(io.BytesIO(row)).convert("RGB")
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
