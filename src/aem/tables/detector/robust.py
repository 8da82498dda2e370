"""A fit to central rows, so that outliers do not influence the density.

The most outlying rows take no part in the fit. They are first determined by a single Gaussian, which
has no component to give to a cluster of outliers, and then twice by a mixture fitted to the rows that
remain, like the concentration steps of robust covariance estimation. For the same reason components
have a smallest weight, above the share of outliers, and networks, which adapt to all rows, are trained
only if there are hardly any outliers.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from aem.base.randomness import some_rows
from aem.base.threads import libraries_alone
from aem.model.mixture import central_rows
from aem.tables.detector.normality import Normality
from aem.tables.fit.automatic import FittedTable, fit_table
from aem.tables.fit.settings import FitSettings

Array = NDArray[np.float64]

# Rows left out per possible outlier. A coarse model confuses outliers with rows in the tails, so there
# is room for as many of these.
LEFT_OUT = 2.0
MOST_LEFT_OUT = 0.4
SMALLEST_SHARE = 2.0  # average weight of a component, as a multiple of the share of outliers
FEWEST_ROWS = 50  # no row of a smaller table is left out
CONCENTRATIONS = 2
CONCENTRATED_ROWS = 5000  # rows of the coarse fits; more find the same outliers
HARDLY_ANY = 0.05  # share of outliers from which no networks are trained


@libraries_alone()
def fit_robustly(
    rows: Array,
    columns: Sequence[str],
    contamination: float,
    *,
    settings: FitSettings,
    seed: int,
    device: str,
) -> tuple[FittedTable, NDArray[np.bool_]]:
    """Fit a table to its central rows, so that outliers do not influence the density.

    Parameters
    ----------
    rows
        rows of which a share may be outliers [B, D].
    columns
        names of the columns.
    contamination
        the share of outliers that there may be, in (0, 0.5].
    settings
        what the caller has set of the fit.
    seed
        seed of all random numbers.
    device
        "auto", "cpu" or "cuda", for the networks.

    Returns
    -------
    fitted : FittedTable
        the fit to the rows that took part.
    kept : array [B]
        which rows those are.
    """
    kept = np.ones(len(rows), dtype=bool)
    plain = replace(settings, steps=0)
    if settings.steps is None and contamination >= HARDLY_ANY:
        settings = plain
    most = max(int(1 / (SMALLEST_SHARE * contamination)), 1)
    if len(rows) >= FEWEST_ROWS:
        share = min(LEFT_OUT * contamination, MOST_LEFT_OUT)
        kept = central_rows(rows, share)
        for _ in range(CONCENTRATIONS):
            some = some_rows(rows[kept], CONCENTRATED_ROWS, seed)
            coarse = fit_table(some, columns, settings=plain, most_components=most, seed=seed)
            level = Normality.of(coarse.table, rows).score(rows)
            kept = level >= np.quantile(level, share)
    fitted = fit_table(
        rows[kept],
        columns,
        settings=settings,
        most_components=most,
        keep_mixture=True,
        seed=seed,
        device=device,
    )
    return fitted, kept
