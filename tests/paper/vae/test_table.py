"""Table 2 as a run writes it, and as the pages show it."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aem.paper.vae.table import PUBLISHED, table_rows
from tools.render import vae


def record(log_prob: float | None, **more: Any) -> dict[str, Any]:
    return {
        "images": 10_000,
        "elbo": None if log_prob is None else log_prob - 3,
        "elbo_2se": None if log_prob is None else 0.2,
        "log_prob": log_prob,
        "log_prob_2se": None if log_prob is None else 0.2,
        "log_prob_error": 0.0,
        **more,
    }


PART = record(
    -77.0,
    images=100,
    elbo_whole_split=-82.5,
    elbo_whole_split_2se=0.21,
    log_prob_whole_split=-79.5,
    log_prob_whole_split_2se=0.22,
    log_prob_error=0.004,
    log_prob_over_proposal=0.012,
    log_prob_over_proposal_2se=0.003,
)
PRIORS = {"gaussian": record(-81.0), "proposal": record(-79.6), "quadrature": PART}


def test_every_published_row_is_there_beside_ours() -> None:
    rows = {row[0]: row[1:] for row in table_rows(PRIORS)}
    assert {name: tuple(row[:2]) for name, row in rows.items() if name in PUBLISHED} == PUBLISHED
    assert rows["VAE"][2:] == ["−84.00 ± 0.20", "−81.00 ± 0.20", "", "", "10,000"]
    assert rows["IAF-DSF"][2:] == [""] * 5
    assert "ResMADE-VAE, trained jointly" not in rows, "neither published nor ours"


def test_a_part_of_the_images_is_shown_as_what_it_says_of_all() -> None:
    rows = {row[0]: row[1:] for row in table_rows(PRIORS)}
    shown = ["−82.50 ± 0.21", "−79.50 ± 0.22", "0.012 ± 0.003", "4e-03", "100"]
    assert rows["AEM-VAE, quadrature"][2:] == shown


def test_an_infinite_score_is_no_gap() -> None:
    (row,) = (r for r in table_rows({"quadrature": record(None)}) if r[0] == "AEM-VAE, quadrature")
    assert row[3:5] == ["−∞", "−∞"]


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(vae, "ROOT", tmp_path)
    monkeypatch.setattr("tools.render.pages.ROOT", tmp_path)
    return vae


def test_pages_show_what_was_measured_and_nothing_before(pages: ModuleType, tmp_path: Path) -> None:
    assert pages.section() == pages.figure("best", "results") == ""
    assert pages.preset_table("best").startswith("Not measured yet")
    folder = tmp_path / "results" / "vae"
    folder.mkdir(parents=True)
    about = {"command": "aem reproduce vae", "device": "abacus", "seconds": 90, "commit": "c0ffee"}
    result = {**about, "evaluation_seconds": 30, "priors": PRIORS}
    (folder / "paper.json").write_text(json.dumps(result))
    text = pages.section()
    assert "| AEM-VAE, quadrature |  | −79.50 ± 0.22 |" in text
    assert "| VAE | −81.23 ± 0.21 | −81.00 ± 0.20 |" in text
    assert "1.5 minutes of training" in pages.preset_table("paper")
    both = pages.summary_table("elbo", "log_prob")
    assert "| VAE | −84.43 ± 0.23 | −84.00 ± 0.20 | −81.23 ± 0.21 | −81.00 ± 0.20 |" in both
    (folder / "best.png").touch()
    assert pages.figure("best", "pictures").endswith("(pictures/vae/best.png)\n\n")
