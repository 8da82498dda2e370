"""Figures that need no display, written whole or not at all."""

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from aem.base.files import write_atomically


def new_figure(width: float, height: float, rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure that needs no display, with its axes in reading order."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(np.ravel(figure.subplots(rows, columns, squeeze=False)))


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write a PNG whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    write_atomically(path, buffer.getvalue())
