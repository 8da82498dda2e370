"""How many rows a measurement treats, on a clock of our own."""

import time

import pytest
import torch

from benchmarks.speed.measuring import rows_for

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("at_least", "a_row"),
    [(0.0, 1e-4), (0.3, 1e-5), (0.3, 0.0), (2.0, 1e-5)],
    ids=["rows alone", "a call costs more than its rows", "rows are free", "a slow call"],
)
def test_rows_grow_until_they_are_what_takes_the_time(
    monkeypatch: pytest.MonkeyPatch, at_least: float, a_row: float
) -> None:
    """Calls take so long whatever their rows, and so long a row."""
    now, most = 0.0, 2**17
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def call(rows: int) -> None:
        nonlocal now
        now += at_least + a_row * rows

    rows = rows_for(call, CPU, seconds=0.5, first=64, most=most)
    taken = at_least + a_row * rows
    if at_least > 0.5:
        assert rows < 64  # there is no way to be as quick; as few as possible
    elif not a_row:
        assert rows == most
    else:
        assert a_row * rows > at_least / 2
        assert taken == pytest.approx(0.5, rel=0.5)
