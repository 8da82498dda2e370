"""The paper's figures 1 and 4: densities in the plane with draws from them, and slices of one."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from aem.base.files import write_atomically
from aem.data.readers import read_arrays
from aem.data.synthetic import PlaneTask
from aem.errors import AemError
from aem.paper.plane.density import PlaneBounds, PlaneDensity
from aem.paper.plots import new_figure
from aem.paper.studies.drawings import BLUE, GREY, STYLE, VERMILION

SLICES = (0.25, 0.5, 0.75)  # where x1 is held, as shares of its range
BINS = 256  # of a histogram, along each axis

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class Picture:
    """Log densities on one grid, with histograms of draws in the same window.

    Parameters
    ----------
    x
        centres of the cells along the first axis.
    y
        centres along the second axis.
    truth
        true log density [y, x].
    proposal
        log density of the proposal [y, x].
    model
        log density of the model [y, x].
    histograms
        densities of draws by name, one of `DRAWN` each.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    truth: NDArray[np.float64]
    proposal: NDArray[np.float64]
    model: NDArray[np.float64]
    histograms: Mapping[str, Grid] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        task: PlaneTask,
        density: PlaneDensity,
        drawn: Mapping[str, NDArray[np.floating]] | None = None,
    ) -> "Picture":
        """Make a picture of the true density, the model, and samples.

        Parameters
        ----------
        task
            the task, whose density is known.
        density
            log densities of model and proposal on a grid.
        drawn
            rows drawn from data, proposal and model, by a name of `DRAWN`.
        """
        points = np.stack(np.meshgrid(density.x, density.y), -1)
        truth = task.log_prob(points.reshape(-1, 2)).reshape(points.shape[:2])
        histograms = {name: _histogram(rows, task.bounds) for name, rows in (drawn or {}).items()}
        return cls(density.x, density.y, truth, density.proposal, density.model, histograms)

    def save(self, path: Path) -> None:
        """Write the grids in half precision, a few hundred kilobytes.

        Parameters
        ----------
        path
            the .npz file.
        """
        buffer = io.BytesIO()
        grids = {name: getattr(self, name) for name in _GRIDS} | dict(self.histograms)
        half = {name: grid.astype(np.float16) for name, grid in grids.items()}
        np.savez_compressed(buffer, x=self.x, y=self.y, **half)
        write_atomically(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> "Picture":
        """Read what `save` wrote.

        Parameters
        ----------
        path
            the .npz file.
        """
        arrays = read_arrays(path, ("x", "y", *_GRIDS), DRAWN)
        shape = (arrays["y"].size, arrays["x"].size)
        if any(arrays[name].shape != shape for name in _GRIDS):
            raise AemError(f"the grids in {path} do not fit their axes")
        wide = {name: np.asarray(a, dtype=np.float64) for name, a in arrays.items()}
        histograms = {name: wide.pop(name) for name in DRAWN if name in wide}
        return cls(**wide, histograms=histograms)

    @property
    def bounds(self) -> PlaneBounds:
        """The outer edges of the cells."""
        half = [(axis[1] - axis[0]) / 2 for axis in (self.x, self.y)]
        return (
            (float(self.x[0] - half[0]), float(self.x[-1] + half[0])),
            (float(self.y[0] - half[1]), float(self.y[-1] + half[1])),
        )

    def slice(self, grid: str, share: float) -> NDArray[np.float64]:
        """Return p(x2 | x1) on the grid of x2.

        Parameters
        ----------
        grid
            which density: "truth", "proposal" or "model".
        share
            where x1 lies within its range, from 0 to 1.
        """
        column = int(share * len(self.x))
        values = np.exp(getattr(self, grid)[:, column])
        return np.asarray(values / (values.mean() * (self.bounds[1][1] - self.bounds[1][0])))


_GRIDS = ("truth", "proposal", "model")
DRAWN = ("data", "proposal_samples", "samples")


def _histogram(rows: NDArray[np.floating], bounds: PlaneBounds) -> Grid:
    counts, _, _ = np.histogram2d(rows[:, 0], rows[:, 1], bins=BINS, range=bounds)
    area = np.prod([(high - low) / BINS for low, high in bounds])
    return np.asarray(counts.T / (len(rows) * area), dtype=np.float64)


def draw_row(picture: Picture, record: Mapping[str, Any]) -> Figure:
    """Draw a row of figure 4a: data, then density and samples of the proposal and of the AEM.

    Parameters
    ----------
    picture
        the densities and histograms.
    record
        metrics of the run, for the captions.
    """
    titles = ("Data", "Proposal density", "Proposal samples", "AEM density", "AEM samples")
    data, proposal_samples, samples = (picture.histograms[name] for name in DRAWN)
    proposal, model = np.exp(picture.proposal), np.exp(picture.model)
    panels = (data, proposal, proposal_samples, model, samples)
    top = float(np.quantile(model, 0.998))
    with mpl.rc_context({"font.size": 10, "font.family": "DejaVu Sans"}):
        figure, axes = new_figure(14.0, 3.35, 5)
        for axis, title, panel, caption in zip(axes, titles, panels, captions(record), strict=True):
            _show(axis, picture, panel, top, "magma", title)
            axis.set_xlabel(caption, fontsize=9)
    return figure


def _show(
    axes: Axes, picture: Picture, density: Grid, top: float, colours: str, title: str
) -> None:
    """Draw a density; values from `top` on have the brightest colour."""
    axes.imshow(
        density,
        origin="lower",
        extent=(*picture.bounds[0], *picture.bounds[1]),
        aspect="auto",
        cmap=colours,
        vmin=0.0,
        vmax=top,
        interpolation="nearest",
    )
    axes.set(box_aspect=1, xticks=[], yticks=[], title=title)


def captions(record: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """Return the captions of a row's panels, with the digits of the tables in the documentation.

    Parameters
    ----------
    record
        metrics of the run.
    """
    points = record["config"]["task"]["train_rows"]
    lost = record.get("rows_without_density", 0)
    model = f"{record['gap']:.4f} nats below it" if record["gap"] is not None else "no density"
    if lost:
        rows = f"{lost:,} of {record['quadrature']['rows']:,} test rows"
        model = f"{model}, but for {rows}" if record["gap"] is not None else f"{model} at {rows}"
    return (
        f"{points:,} points; best possible: {record['limit']:.3f} nats",
        f"{record['proposal_gap']:.4f} nats below it",
        "",
        model,
        "",
    )


def draw_teaser(picture: Picture) -> Figure:
    """Draw figure 1: the data and the proposal, small, beside the model, large.

    Parameters
    ----------
    picture
        the densities and histograms.
    """
    top = float(np.quantile(np.exp(picture.truth), 0.998))
    with mpl.rc_context({"font.size": 10, "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(7.2, 4.9), layout="constrained")
        grid = figure.add_gridspec(2, 3)
        places = (grid[0, 0], grid[1, 0], grid[:, 1:])
        titles = ("Data", "ResMADE (the proposal)", "AEM")
        for place, title, name in zip(places, titles, _GRIDS, strict=True):
            density = np.exp(getattr(picture, name))
            _show(figure.add_subplot(place), picture, density, top, "gray", title)
    return figure


def draw_slices(picture: Picture) -> Figure:
    """Draw figure 4b: conditionals of x2 at a few x1, the truth behind the proposal and the model.

    Parameters
    ----------
    picture
        true, proposal and model density on one grid.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 1.75 * len(SLICES) + 0.5), layout="constrained")
        panels = figure.subplots(len(SLICES), 2, sharex=True, sharey="row", squeeze=False)
        for row, share in zip(panels, SLICES, strict=True):
            x1 = picture.x[int(share * len(picture.x))]
            _draw_slice(row[0], picture, share, "proposal", VERMILION)
            _draw_slice(row[1], picture, share, "model", BLUE)
            row[0].set_ylabel(f"p(x₂ | x₁ = {x1:.2f})")
        for axes, title in zip(panels[0], ("ResMADE (the proposal)", "AEM"), strict=True):
            axes.set_title(title)
        for axes in panels[-1]:
            axes.set_xlabel("x₂")
            axes.set_xlim(*picture.bounds[1])
        handles, labels = panels[0, 1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _draw_slice(axes: Axes, picture: Picture, share: float, name: str, colour: str) -> None:
    truth = picture.slice("truth", share)
    axes.fill_between(picture.y, truth, color=GREY, alpha=0.3, linewidth=0, label="true density")
    values = picture.slice(name, share)
    axes.plot(picture.y, values, color=colour, linewidth=1.1, label="conditional of the model")
    axes.set_ylim(0, 1.1 * max(truth.max(), values.max(), axes.get_ylim()[1] / 1.1))
