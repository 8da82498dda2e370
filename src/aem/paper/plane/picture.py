"""The paper's figures 1 and 4b: a picture learnt as a density, whole and in slices."""

import io
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from aem.base.files import write_atomically
from aem.data.readers import read_arrays
from aem.data.synthetic import PlaneTask
from aem.errors import AemError
from aem.paper.plane.density import Bounds, PlaneDensity
from aem.paper.studies.figures import BLUE, GREY, STYLE, VERMILION

SLICES = (0.25, 0.5, 0.75)  # where x1 is held, as shares of its range
COLOURS = "gray"


@dataclass(frozen=True)
class Picture:
    """Log densities [y, x] on one grid."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    truth: NDArray[np.float64]
    proposal: NDArray[np.float64]
    model: NDArray[np.float64]

    @classmethod
    def of(cls, task: PlaneTask, density: PlaneDensity) -> "Picture":
        """The true density beside what a model made of it."""
        points = np.stack(np.meshgrid(density.x, density.y), -1)
        truth = task.log_prob(points.reshape(-1, 2)).reshape(points.shape[:2])
        return cls(density.x, density.y, truth, density.proposal, density.model)

    def save(self, path: Path) -> None:
        """A few hundred kilobytes: half precision is finer than any eye."""
        buffer = io.BytesIO()
        half = {name: getattr(self, name).astype(np.float16) for name in _GRIDS}
        np.savez_compressed(buffer, x=self.x, y=self.y, **half)
        write_atomically(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> "Picture":
        """What `save` wrote."""
        arrays = read_arrays(path, ("x", "y", *_GRIDS))
        shape = (arrays["y"].size, arrays["x"].size)
        if any(arrays[name].shape != shape for name in _GRIDS):
            raise AemError(f"the grids in {path} do not fit their axes")
        return cls(**{name: np.asarray(a, dtype=np.float64) for name, a in arrays.items()})

    @property
    def bounds(self) -> Bounds:
        """The outer edges of the cells."""
        half = [(axis[1] - axis[0]) / 2 for axis in (self.x, self.y)]
        return (
            (float(self.x[0] - half[0]), float(self.x[-1] + half[0])),
            (float(self.y[0] - half[1]), float(self.y[-1] + half[1])),
        )

    def slice(self, grid: str, share: float) -> NDArray[np.float64]:
        """p(x2 | x1) on the grid of x2, for the x1 at that share of its range."""
        column = int(share * len(self.x))
        values = np.exp(getattr(self, grid)[:, column])
        return np.asarray(values / (values.mean() * (self.bounds[1][1] - self.bounds[1][0])))


_GRIDS = ("truth", "proposal", "model")


def draw_teaser(picture: Picture) -> Figure:
    """Figure 1: the data and the proposal, small, beside the model, large."""
    top = float(np.quantile(np.exp(picture.truth), 0.998))
    with mpl.rc_context({"font.size": 10, "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(7.2, 4.9), layout="constrained")
        grid = figure.add_gridspec(2, 3)
        places = (grid[0, 0], grid[1, 0], grid[:, 1:])
        titles = ("Data", "ResMADE (the proposal)", "AEM")
        for place, title, name in zip(places, titles, _GRIDS, strict=True):
            axes = figure.add_subplot(place)
            axes.imshow(
                np.exp(getattr(picture, name)),
                origin="lower",
                extent=(*picture.bounds[0], *picture.bounds[1]),
                aspect="auto",
                cmap=COLOURS,
                vmin=0.0,
                vmax=top,
                interpolation="nearest",
            )
            axes.set_box_aspect(1)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(title)
    return figure


def draw_slices(picture: Picture) -> Figure:
    """Figure 4b: conditionals of x2 at a few x1, the truth behind the proposal and the model."""
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
