"""The tables of the plane tasks say what the records do."""

from typing import Any

import pytest

from tools.render import plane


def record(**changes: Any) -> dict[str, Any]:
    found = {
        "config": {"task": {"train_rows": 1_000_000}},
        "limit": -3.14337,
        "proposal_gap": 0.05,
        "gap": 0.01,
        "gap_2se": 0.002,
        "test_log_prob_error": 6e-4,
        "steps": 400_000,
        "seconds": 122.4,
        "device": "GPU",
    }
    return {**found, **changes}


def rows(monkeypatch: pytest.MonkeyPatch, records: dict[str, Any]) -> list[list[str]]:
    monkeypatch.setattr(plane, "result", lambda name: records.get(name.partition("/")[0]))
    lines = plane.plane_table("paper").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_run_without_estimates_has_no_columns_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    header, _, row = rows(monkeypatch, {"spirals": record()})
    assert dict(zip(header, row, strict=True)) == {
        "task": "spirals",
        "points": "1,000,000",
        "best possible (nats)": "-3.143",
        "gap of the proposal": "0.0500",
        "gap of the AEM": "**0.0100** ± 0.0020",
        "numerical error of log p": "6e-04",
        "training": "400,000 steps, 122 s",
        "device": "GPU",
    }


def test_estimates_and_lost_rows_stand_beside_the_quadrature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    estimate = {"gap": 0.008, "gap_2se": 0.001}
    some = {"importance": estimate, "quadrature": {"rows": 2000}, "rows_without_density": 3}
    lost = {**some, "rows_without_density": 2000, "gap": None, "gap_2se": None}
    header, _, *found = rows(
        monkeypatch,
        {"spirals": record(**some), "diamond": record(**lost), "einstein": record()},
    )
    by_task = {row[0]: dict(zip(header, row, strict=True)) for row in found}
    assert by_task["spirals"]["gap of the AEM, importance sampling"] == "0.0080 ± 0.0010"
    assert by_task["spirals"]["gap of the AEM, quadrature"] == "**0.0100** ± 0.0020"
    assert by_task["spirals"]["rows without a density"] == "3 of 2,000"
    assert by_task["diamond"]["gap of the AEM, quadrature"] == "—"
    assert by_task["diamond"]["rows without a density"] == "2,000 of 2,000"
    assert by_task["einstein"]["gap of the AEM, importance sampling"] == ""
