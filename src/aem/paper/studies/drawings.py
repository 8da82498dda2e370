"""The figures of the studies, drawn from their JSON records."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

# Blue and vermilion of Okabe and Ito: told apart by every kind of colour vision, and in grey.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#666666"
COLOURS = {"iid": BLUE, "stratified": VERMILION}
MARKERS = {"iid": "o", "stratified": "s"}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


def draw_calibration(models: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw one column per model: above the spread of log Ẑ − log Z, below its size on log axes.

    Parameters
    ----------
    models
        records of the calibration study, one per model.
    """
    with mpl.rc_context(STYLE):
        count = len(models)
        figure = Figure(figsize=(1.2 + 4.0 * count, 6.0), layout="constrained")
        axes = figure.subplots(2, count, squeeze=False)
        for other in axes[1, 1:]:  # sizes compare across models; a linear axis could not show both
            other.sharey(axes[1, 0])
        for column, model in enumerate(models):
            _draw_boxes(axes[0, column], model["spreads"])
            _draw_sizes(axes[1, column], model)
            axes[0, column].set_title(f"{model['task']} ({model['conditionals']:,} conditionals)")
        axes[0, 0].set_ylabel("log Ẑ − log Z (nats)")
        axes[1, 0].set_ylabel("|log Ẑ − log Z| (nats)")
        boxes = [Patch(facecolor=c, alpha=0.45, label=k) for k, c in COLOURS.items()]
        axes[0, -1].legend(
            handles=boxes, loc="lower right", title="box: quartiles; whiskers: 5 % and 95 %"
        )
        axes[1, 0].legend(handles=_size_handles(), fontsize=7, loc="lower left")
        figure.suptitle(
            "Importance sampling estimates of log Z against the trapezoid rule", fontsize=10
        )
    return figure


def _draw_boxes(axes: Axes, spreads: Sequence[Mapping[str, Any]]) -> None:
    samples = sorted({s["samples"] for s in spreads})
    for offset, kind in ((-0.2, "iid"), (0.2, "stratified")):
        chosen = [s for s in spreads if s["kind"] == kind]
        places = [samples.index(s["samples"]) + offset for s in chosen]
        _boxes(axes, [s["difference"] for s in chosen], places, 0.32, COLOURS[kind], 0.45)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(samples)), [f"{s:,}" for s in samples], rotation=45)
    axes.set_xlabel("samples S")
    axes.grid(visible=False, axis="x")


def _boxes(
    axes: Axes,
    quantiles: Sequence[Mapping[str, float]],
    places: Sequence[float],
    width: float,
    colour: str,
    alpha: float,
) -> None:
    """Quartiles as boxes, 5 % and 95 % as whiskers."""
    marks = {"med": "q50", "q1": "q25", "q3": "q75", "whislo": "q05", "whishi": "q95"}
    axes.bxp(
        [{mark: own[level] for mark, level in marks.items()} for own in quantiles],
        positions=places,
        widths=width,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "edgecolor": colour, "alpha": alpha},
        medianprops={"color": "black"},
        whiskerprops={"color": colour},
        capprops={"color": colour},
    )


def _draw_sizes(axes: Axes, model: Mapping[str, Any]) -> None:
    for kind, colour in COLOURS.items():
        chosen = [s for s in model["spreads"] if s["kind"] == kind]
        x = [s["samples"] for s in chosen]
        median = [s["absolute"]["q50"] for s in chosen]
        axes.plot(x, median, color=colour, marker=MARKERS[kind], markersize=4)
        axes.plot(x, [s["absolute"]["q95"] for s in chosen], color=colour, linestyle="--")
        if kind == "iid":
            middle = len(x) // 2
            guide = median[middle] * np.sqrt(x[middle] / np.asarray(x, dtype=float))
            axes.plot(x, guide, color=GREY, linestyle=":", linewidth=1)
    quadrature = model["quadrature"]
    nodes = quadrature["mean_nodes"]
    axes.plot(nodes, quadrature["median"], color="black", marker="*", markersize=10)
    axes.plot(nodes, quadrature["largest"], color="black", marker="_", markersize=10)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("samples S, or nodes of the quadrature")


def _size_handles() -> list[Line2D]:
    return [
        Line2D([], [], color=BLUE, marker="o", markersize=4, label="iid, median"),
        Line2D([], [], color=VERMILION, marker="s", markersize=4, label="stratified, median"),
        Line2D([], [], color=GREY, linestyle="--", label="95 % of either"),
        Line2D([], [], color=GREY, linestyle=":", linewidth=1, label="∝ 1/√S"),
        Line2D([], [], color="black", linestyle="", marker="*", label="quadrature, median"),
        Line2D([], [], color="black", linestyle="", marker="_", label="quadrature, largest"),
    ]


def draw_dimensionality(record: Mapping[str, Any]) -> Figure:
    """Draw boxes of log Ẑ, with every trial as a dot, against the true value.

    Parameters
    ----------
    record
        record of the dimensionality study.
    """
    results = record["results"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        _boxes(axes, [r["log_z"] for r in results], range(len(results)), 0.5, BLUE, 0.35)
        for place, r in enumerate(results):
            trials = np.asarray(r["trials"])
            # Spread by rank, not at random: the same record gives the same picture.
            sideways = (np.argsort(np.argsort(trials)) * 0.618034 % 1 - 0.5) * 0.36
            axes.plot(place + sideways, trials, ".", color="black", markersize=3, alpha=0.45)
        axes.axhline(0, color=VERMILION, linewidth=1.2, label="true log Z = 0")
        axes.set_xticks(range(len(results)), [f"{r['dimension']:,}" for r in results])
        axes.set_xlabel("dimension D")
        axes.set_ylabel("log Ẑ (nats)")
        axes.grid(visible=False, axis="x")
        setup = record["config"]
        axes.set_title(
            f"{setup['trials']} trials of {setup['samples']} importance samples: target"
            f" σ = {setup['target_scale']:g}, proposal σ = {setup['proposal_scale']:g}"
        )
        axes.legend(loc="lower left", title="box: quartiles; whiskers: 5 % and 95 %")
    return figure
