"""The overview of a report in sentences."""

from typing import Any

from aem.report.limits import Limits
from aem.tables.model import TableModel


def summary(
    table: TableModel,
    metrics: dict[str, Any],
    normaliser: dict[str, Any],
    limits: Limits,
    listed: list[dict[str, Any]],
) -> list[str]:
    """Return the overview: sentences with the main results.

    Parameters
    ----------
    table
        the model that is reported on.
    metrics
        the main numbers.
    normaliser
        what `normaliser_record` returned.
    limits
        how many rows each part of the report looked at.
    listed
        the most surprising rows, as `surprises` returned them.
    """
    rows, scored = metrics["rows"], metrics["rows_scored"]
    which = "all of them" if scored == rows else f"{scored:,} of them, drawn at random"
    return [
        f"The table has {rows:,} rows and {metrics['columns']} columns"
        + _discrete(table)
        + _fitted_on(table, rows),
        f"Its mean log density is {_said(metrics['mean_log_density'], '.3f')} ± "
        f"{_said(metrics['mean_log_density_2se'], '.3f')} nats per row, in the units of the data "
        f"(scored: {which}; ± two standard errors).",
        _exactness(normaliser),
        _surprise(table, listed),
        _calibration(metrics, limits),
    ]


def _said(value: float | None, form: str) -> str:
    return "an infinite number of" if value is None else f"{value:{form}}".replace("-", "−")


def _exactness(normaliser: dict[str, Any]) -> str:
    if normaliser["largest_error"] == 0:
        return (
            "Scores are exact: conditionals are mixtures of Gaussians, whose normalisers are known."
        )
    return (
        "Scores are computed, not sampled: by the estimate that comes with each, they are off by "
        f"{_said(normaliser['mean_error'], '.1g')} nats on average and by "
        f"{_said(normaliser['largest_error'], '.1g')} at most."
    )


def _discrete(table: TableModel) -> str:
    count = len(table.discrete)
    return f", {count} of them discrete." if count else "."


def _fitted_on(table: TableModel, rows: int) -> str:
    fitted = table.about.get("rows")
    if fitted is None:
        return ""
    if fitted == rows:
        return (
            " The model was fitted on a table of as many rows: if it is this one, the scores flatter "
            "the model, and rows it has not seen are the better test."
        )
    return f" The model was fitted on {fitted:,} rows."


def _surprise(table: TableModel, listed: list[dict[str, Any]]) -> str:
    lowest = listed[0]
    column = table.columns[lowest["blame"][0]["column"]]
    return (
        f"The most surprising row is row {lowest['row']:,} with a log density of "
        f"{_said(lowest['log_density'], '.1f')}, above all because of column "
        f"“{column}”."
    )


def _calibration(metrics: dict[str, Any], limits: Limits) -> str:
    off = metrics["columns_off"]
    if not off:
        return (
            f"The calibration of all columns is within what chance allows for {limits.calibrated:,} "
            "rows."
        )
    shown = ", ".join(f"“{name}”" for name in off[:5]) + (", …" if len(off) > 5 else "")
    return (
        f"The calibration of {len(off)} of {metrics['columns']} columns is off by more than chance "
        f"allows: {shown}."
    )
