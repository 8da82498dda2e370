"""Published test log-likelihoods (nats ± two standard errors) of the five tables, typed once.

`TABLE_1` is the paper's table 1; its error bars are over test rows, except for MAF-DDSF, which has
them over five runs. `LATER` is what was published afterwards and is the best we know of. `GAUSSIAN` is
MAF's, of a Gaussian with full covariance: a check of the data, as it has nothing to tune.
"""

from typing import Final, NamedTuple


class Published(NamedTuple):
    """A row of a table: (value, ± or None) by column."""

    model: str
    scores: dict[str, tuple[float, float | None]]


def with_spread(value: float, spread: float | None) -> str:
    """Return a score as tables show it.

    Parameters
    ----------
    value
        the mean, in nats.
    spread
        two standard errors, where they are known.
    """
    return f"{value:.2f}" if spread is None else f"{value:.2f} ± {spread:.2f}"


COLUMNS: Final = ("POWER", "GAS", "HEPMASS", "MINIBOONE", "BSDS300")


def _row(model: str, *scores: tuple[float, float]) -> Published:
    return Published(model, dict(zip(COLUMNS, scores, strict=True)))


TABLE_1: Final = (
    _row("MADE-MoG", (0.40, 0.01), (8.47, 0.02), (-15.15, 0.02), (-12.27, 0.47), (153.71, 0.28)),
    _row("MAF", (0.30, 0.01), (10.08, 0.02), (-17.39, 0.02), (-11.68, 0.44), (156.36, 0.28)),
    _row("MAF-DDSF", (0.62, 0.01), (11.96, 0.33), (-15.09, 0.40), (-8.86, 0.15), (157.73, 0.04)),
    _row(
        "TAN (various)",
        (0.60, 0.01),
        (12.06, 0.02),
        (-13.78, 0.02),
        (-11.01, 0.48),
        (159.80, 0.07),
    ),
    _row(
        "ResMADE-MoG (proposal)",
        (0.61, 0.01),
        (12.80, 0.01),
        (-13.42, 0.01),
        (-11.01, 0.23),
        (157.41, 0.14),
    ),
    _row("AEM-KDE", (0.65, 0.01), (12.89, 0.01), (-12.87, 0.01), (-10.33, 0.22), (158.44, 0.14)),
    _row(
        "AEM, 20,000 samples",
        (0.70, 0.01),
        (13.03, 0.01),
        (-12.85, 0.01),
        (-10.17, 0.26),
        (158.71, 0.14),
    ),
)
LATER: Final = (
    Published("TraDE", {"POWER": (0.73, None), "BSDS300": (160.01, None)}),
    Published("DiffFlow", {"POWER": (1.04, None), "MINIBOONE": (-8.06, None)}),
)
GAUSSIAN: Final = Published(
    "Gaussian", {"POWER": (-7.74, 0.02), "MINIBOONE": (-37.24, 1.07), "BSDS300": (96.67, 0.25)}
)

# Milliseconds of a training step of the authors' public code on one H200, by shape (`docs/speed.md`).
AUTHORS_STEP_MS: Final = {"plane": 14.5, "POWER": 11.4, "HEPMASS": 12.3, "BSDS300": 22.4}
