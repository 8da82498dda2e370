"""Figures. Every function takes numbers and returns a matplotlib figure."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from aem.base.files import write_atomically
from aem.paper.plane.density import Bounds, PlaneDensity

COLOURS = "magma"


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


def _histogram(rows: NDArray[np.floating], bounds: Bounds, bins: int) -> NDArray[np.float64]:
    counts, _, _ = np.histogram2d(rows[:, 0], rows[:, 1], bins=bins, range=bounds)
    area = np.prod([(high - low) / bins for low, high in bounds])
    return np.asarray(counts.T / (len(rows) * area), dtype=np.float64)


def plane_row(
    bounds: Bounds,
    data: NDArray[np.floating],
    density: PlaneDensity,
    proposal_samples: NDArray[np.floating],
    samples: NDArray[np.floating],
    captions: Sequence[str] = ("", "", "", "", ""),
    bins: int = 192,
) -> Figure:
    """The paper's figure row: data, proposal density and samples, AEM density and samples.

    All five panels share one colour scale, so that equal colours are equal densities.
    """
    panels = [
        ("Data", _histogram(data, bounds, bins)),
        ("Proposal density", np.exp(density.proposal)),
        ("Proposal samples", _histogram(proposal_samples, bounds, bins)),
        ("AEM density", np.exp(density.model)),
        ("AEM samples", _histogram(samples, bounds, bins)),
    ]
    top = float(np.quantile(panels[3][1], 0.998))
    with mpl.rc_context({"font.size": 10, "font.family": "DejaVu Sans"}):
        figure, axes = new_figure(14.0, 3.35, 1, 5)
        for axis, (title, values), caption in zip(axes, panels, captions, strict=True):
            axis.imshow(
                values,
                origin="lower",
                extent=(*bounds[0], *bounds[1]),
                aspect="auto",
                cmap=COLOURS,
                vmin=0.0,
                vmax=top,
                interpolation="nearest",
            )
            axis.set_box_aspect(1)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(title)
            axis.set_xlabel(caption, fontsize=9)
    return figure
