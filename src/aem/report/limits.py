"""How much of a table a report looks at: enough to see, little enough to wait for."""

from dataclasses import dataclass

from aem.errors import AemError

SCREENED = 2_000_000  # conditionals, cheaply
SCORED = 20_000  # conditionals, exactly
CALIBRATED = 6_000
COUNTED = 2_000
PICTURED = 60_000  # numbers of each of data and samples


@dataclass(frozen=True)
class Limits:
    """Rows for each part of a report."""

    screened: int  # estimated, to find the rows worth a look
    scored: int  # scored exactly, at random: what means are taken over
    calibrated: int  # whose PIT values are computed
    counted: int  # whose normalisers' nodes are counted
    pictured: int  # drawn as points
    sampled: int
    listed: int = 25  # most surprising rows

    @classmethod
    def for_table(cls, rows: int, columns: int, scored: int | None = None) -> "Limits":
        """What suits a table; `scored` rows at most if given."""
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
