"""The contents of a report as plain data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aem.base.progress import Report, silent
from aem.errors import AemError
from aem.evaluation.summary import two_standard_errors
from aem.report.calibration import calibration_record, pit_values
from aem.report.histograms import marginal
from aem.report.limits import Limits
from aem.report.making import making_record
from aem.report.numbers import pack, short, shorts, shown_range
from aem.report.scores import normaliser_record, score_table, scores_record
from aem.report.surprises import surprises
from aem.report.training import training_record
from aem.report.words import summary
from aem.tables.model import TableModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BuiltReport:
    """The contents of a report.

    Parameters
    ----------
    metrics
        the main numbers, for machines, as JSON can hold them.
    record
        everything that the page shows; `render` makes the page of it.
    """

    metrics: dict[str, Any]
    record: dict[str, Any]


def build(
    table: TableModel,
    x: Array,
    *,
    path: Path,
    data: str,
    limits: Limits | None = None,
    seed: int = 0,
    report: Report = silent,
) -> BuiltReport:
    """Compute the contents of a report about a model and a table.

    The page has the columns in the order in which the model reads them.

    Parameters
    ----------
    table
        the model; its columns must not be mixed, as a symmetry mixes them.
    x
        rows in the units of the table [B, D], two at least.
    path
        the model's file, whose name the page shows.
    data
        what the page calls the rows.
    limits
        how many rows each part looks at; what suits the table without any.
    seed
        seed of all random numbers.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    if len(x) < 2:
        raise AemError(f"{data} has one row; a report needs at least two")
    if table.mixes:
        raise AemError(f"{path} mixes its columns: a report cannot show them one by one")
    places = [table.columns.index(name) for name in table.model.columns]
    table, x = table.in_order(table.model.columns), x[:, places]
    limits = limits or Limits.for_table(len(x), len(table.columns))
    rng = np.random.default_rng(seed)
    found = score_table(table, x, limits, rng, report)
    drawn = table.sample(limits.sampled, seed, lambda _, d, t: report("samples", d, t))
    drawn_scores = table.score(
        drawn[: limits.calibrated], lambda _, d, t: report("scores of samples", d, t)
    )
    calibrated = rng.choice(len(x), limits.calibrated, replace=False)
    calibration = calibration_record(pit_values(table, x[calibrated], rng, report))
    normaliser = normaliser_record(table, x, found, limits)
    listed = surprises(table, x[found.odd], found.odd, report)
    total = found.scores.total
    metrics = {
        "rows": len(x),
        "columns": len(table.columns),
        "rows_scored": len(total),
        "mean_log_density": short(float(total.mean()), 17),
        "mean_log_density_2se": short(two_standard_errors(total), 17),
        "mean_log_density_error": normaliser["mean_error"],
        "largest_error": normaliser["largest_error"],
        "lowest_log_density": listed[0]["log_density"],
        "lowest_row": listed[0]["row"],
        "columns_off": [
            name
            for name, column in zip(table.columns, calibration["columns"], strict=True)
            if column["off"]
        ],
    }
    training = training_record(table.about, path)
    record = {
        "title": f"{path.name} and {data}",
        "columns": list(table.columns),
        "summary": summary(table, metrics, normaliser, limits, listed),
        "scores": scores_record(found, drawn_scores),
        "training": training,
        **_pictures(table, x, drawn, limits, rng),
        "calibration": calibration,
        "surprises": {
            "rows": listed,
            "screened": found.screened,
            "of": len(x),
            "estimated": len(total) < len(x),
        },
        "normaliser": normaliser,
        "making": making_record(table, path, data, limits, seed),
    }
    return BuiltReport(metrics, record)


def _pictures(
    table: TableModel, x: Array, drawn: Array, limits: Limits, rng: np.random.Generator
) -> dict[str, Any]:
    """Return marginals of all rows, and scatter plots of some."""
    discrete = {column.column: column for column in table.discrete}
    columns = range(len(table.columns))
    ranges = [shown_range(x[:, d], drawn[:, d]) for d in columns]
    for d, name in enumerate(table.columns):
        if name in discrete:  # room for whole cells
            half = discrete[name].step / 2
            ranges[d] = (ranges[d][0] - half, ranges[d][1] + half)
    some = x[rng.choice(len(x), min(len(x), limits.pictured), replace=False)]
    some_drawn = drawn[: limits.pictured]
    return {
        "marginals": {
            "rows": len(x),
            "samples": len(drawn),
            "columns": [
                marginal(x[:, d], drawn[:, d], discrete.get(table.columns[d])) for d in columns
            ],
        },
        "points": {
            "ranges": [shorts(r, 8) for r in ranges],
            "steps": [discrete[n].step if n in discrete else None for n in table.columns],
            "data": {"rows": len(some), "packed": pack(some, ranges)},
            "samples": {"rows": len(some_drawn), "packed": pack(some_drawn, ranges)},
        },
    }
