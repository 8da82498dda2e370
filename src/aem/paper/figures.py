"""The figures of the paper, drawn from files under results/ as far as these exist."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aem.base.files import read_json, write_atomically
from aem.errors import AemError
from aem.paper.gallery import ROWS, row_of, stack_rows
from aem.paper.plane.picture import Picture, draw_slices, draw_teaser
from aem.paper.plots import save_figure
from aem.paper.studies.drawings import draw_calibration, draw_dimensionality
from aem.paper.table1 import build


@dataclass(frozen=True)
class PaperFigure:
    """A figure or table of the paper, with the files that it needs and the commands that make them.

    Parameters
    ----------
    name
        file name of the figure, without its extension.
    title
        what it shows.
    sources
        files under the folder of results that it needs.
    origin
        the command that makes those files.
    draw
        a function of the folder of results and the PNG to write.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    origin: str
    draw: Callable[[Path, Path], None]


PORTRAIT: Final = "image/paper.npz"  # of the picture that ships: the paper's may not
CALIBRATED: Final = tuple(f"calibration/{name}.json" for name in ("einstein", "power", "bsds300"))


def _calibration(results: Path, out: Path) -> None:
    records = [read_json(results / source) for source in CALIBRATED]
    save_figure(draw_calibration([model for record in records for model in record["models"]]), out)


FIGURES: Final = (
    PaperFigure(
        "figure1",
        "A picture as a density: data, proposal, AEM",
        (PORTRAIT,),
        "aem reproduce image --preset paper (density.npz in its folder)",
        lambda results, out: save_figure(draw_teaser(Picture.load(results / PORTRAIT)), out),
    ),
    PaperFigure(
        "figure2",
        "Importance sampling in growing dimension",
        ("dimensionality/dimensionality.json",),
        "aem reproduce dimensionality",
        lambda results, out: save_figure(
            draw_dimensionality(read_json(results / "dimensionality" / "dimensionality.json")), out
        ),
    ),
    PaperFigure(
        "figure4a",
        "Densities and samples of the plane tasks",
        tuple(f"{task}/paper.{kind}" for task in ROWS for kind in ("json", "npz")),
        "aem reproduce spirals --preset paper, and so on (metrics.json, density.npz in its folder)",
        lambda results, out: stack_rows([row_of(results, task) for task in ROWS], out),
    ),
    PaperFigure(
        "figure4b",
        "Conditionals of the picture",
        (PORTRAIT,),
        "aem reproduce image --preset paper (density.npz in its folder)",
        lambda results, out: save_figure(draw_slices(Picture.load(results / PORTRAIT)), out),
    ),
    PaperFigure(
        "figure5",
        "Accuracy of estimated normalisers",
        CALIBRATED,
        "aem reproduce calibration --model MODEL --data TABLE (calibration.json in its folder)",
        _calibration,
    ),
    PaperFigure(
        "figure6",
        "Digits, and samples of an autoencoder with an AEM as its prior",
        ("vae/paper.png",),
        "aem reproduce vae --preset paper (figure.png in its folder)",
        lambda results, out: write_atomically(out, (results / "vae" / "paper.png").read_bytes()),
    ),
    PaperFigure(
        "table1",
        "Test log-likelihoods of real data",
        (),
        "aem reproduce power --preset best, and so on",
        lambda results, out: save_figure(build(results).figure(), out),
    ),
)


def draw_all(results: Path, out: Path) -> list[tuple[PaperFigure, Path | None, tuple[str, ...]]]:
    """Draw every figure that there is data for.

    Parameters
    ----------
    results
        the folder of results.
    out
        the folder of the PNGs.

    Returns
    -------
    list of (figure, file, missing)
        the figures with the file that was drawn, or None and what it lacks.
    """
    if not results.is_dir():
        raise AemError(f"there is no folder of results at {results}")
    drawn: list[tuple[PaperFigure, Path | None, tuple[str, ...]]] = []
    for figure in FIGURES:
        missing = tuple(source for source in figure.sources if not (results / source).is_file())
        file = None if missing else out / f"{figure.name}.png"
        if file is not None:
            try:
                figure.draw(results, file)
            except (KeyError, TypeError, ValueError, IndexError, OSError) as error:
                named = ", ".join(figure.sources) or "a result"
                raise AemError(f"{figure.name} cannot be drawn: {named} is damaged") from error
        drawn.append((figure, file, missing))
    return drawn
