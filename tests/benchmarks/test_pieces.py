"""Pieces of a measurement add up to the whole, and only pieces that belong together do."""

from pathlib import Path
from typing import Any

import pytest

from aem.errors import AemError
from benchmarks.accuracy import pieces

ONE: dict[str, Any] = {"task": "wine", "methods": {"aem": {"test_log_prob": 1.5}}}
OTHER: dict[str, Any] = {"task": "wine", "methods": {"kernel density": {"test_log_prob": 0.5}}}


def test_pieces_written_and_read_add_up(tmp_path: Path) -> None:
    for name, found in (("wine+aem", ONE), ("wine+kernel density", OTHER)):
        pieces.write_piece(tmp_path, name, pieces.piece(found, 2.0))
    assert (tmp_path / "wine+kernel-density.json").is_file()
    whole = pieces.merge(pieces.read_pieces(tmp_path))
    assert whole["methods"] == {**ONE["methods"], **OTHER["methods"]}
    assert whole["seconds"] == 4.0
    assert len(whole["pieces"]) == 2
    assert {"command", "config", "seed", "device", "commit", "torch", "processor"} <= set(whole)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"origin": {"commit": "another"}}, "commit"),
        ({"found": {"methods": {"aem": {"test_log_prob": 2.0}}}}, "test_log_prob"),
    ],
)
def test_pieces_that_do_not_belong_together(change: dict[str, Any], said: str) -> None:
    one = pieces.piece(ONE, 1.0)
    other = {key: {**one[key], **change.get(key, {})} for key in one}
    with pytest.raises(AemError, match=said):
        pieces.merge([one, other])
    with pytest.raises(AemError, match="no pieces"):
        pieces.merge([])
