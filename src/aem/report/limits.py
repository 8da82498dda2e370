"""How many rows each part of a report uses, to limit its computing time."""

from dataclasses import dataclass

from aem.errors import AemError

SCREENED = 2_000_000  # conditionals that are estimated from a few nodes
SCORED = 20_000  # conditionals that are integrated
CALIBRATED = 6_000
COUNTED = 2_000
PICTURED = 60_000  # numbers in the scatter plots, of data and of samples


@dataclass(frozen=True)
class Limits:
    """How many rows each part of a report uses.

    Parameters
    ----------
    screened
        rows whose log density is estimated, to find those worth a closer look.
    scored
        rows scored exactly, taken at random: means are over these.
    calibrated
        rows whose PIT values are computed.
    counted
        rows whose normalisers' nodes are counted.
    pictured
        rows drawn as points, of the data and of the samples each.
    sampled
        rows drawn from the model.
    listed
        rows in the list of the most surprising ones.
    """

    screened: int
    scored: int
    calibrated: int
    counted: int
    pictured: int
    sampled: int
    listed: int = 25

    @classmethod
    def for_table(cls, rows: int, columns: int, scored: int | None = None) -> "Limits":
        """Choose the numbers of rows for a table.

        Parameters
        ----------
        rows
            number of rows of the table.
        columns
            number of its columns: with more of them, fewer rows are looked at.
        scored
            how many rows to score exactly, at most; None leaves it to the size of the table.
        """
        if scored is not None and scored < 2:
            raise AemError(f"a report needs at least two scored rows, not {scored}")

        def affordable(numbers: int, fewest: int, most: int) -> int:
            return min(max(numbers // columns, fewest), most)

        return cls(
            screened=min(rows, affordable(SCREENED, 2_000, 100_000)),
            scored=min(rows, affordable(SCORED, 300, 5_000) if scored is None else scored),
            calibrated=min(rows, affordable(CALIBRATED, 200, 1_000)),
            counted=min(rows, affordable(COUNTED, 20, 200)),
            pictured=affordable(PICTURED, 200, 4_000),
            sampled=affordable(4 * PICTURED, 1_000, 10_000),
        )
