"""Figures without a display, and PNG files."""

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from aem.base.files import write_atomically


def new_figure(width: float, height: float, columns: int) -> tuple[Figure, list[Axes]]:
    """Return a figure that needs no display, and its axes from left to right.

    Parameters
    ----------
    width
        width of the figure in inches.
    height
        height of the figure in inches.
    columns
        how many axes stand beside each other.

    Returns
    -------
    figure : Figure
        the figure.
    axes : list of Axes
        its axes, from left to right.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(np.ravel(figure.subplots(1, columns, squeeze=False)))


def as_png(figure: Figure) -> bytes:
    """Return a figure as a PNG.

    Parameters
    ----------
    figure
        a figure made by `new_figure`.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG, whole or not at all.

    Parameters
    ----------
    figure
        a figure made by `new_figure`.
    path
        the file to write.
    """
    write_atomically(path, as_png(figure))
