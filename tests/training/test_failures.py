"""What goes wrong is said, and no good checkpoint is lost."""

import itertools
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aem import AEM, AemError
from aem.base.files import read_tensors
from aem.training import fit
from aem.training import objective as step
from tests.support.short_runs import SHORT, TINY, TRAIN, VALIDATION, Table, assert_same, fresh, run


def explode(monkeypatch: pytest.MonkeyPatch, at: int, how: Callable[[Tensor, AEM], Tensor]) -> None:
    objective, calls = step.objective, itertools.count(1)

    def exploding(model: AEM, *args: Any, **kw: Any) -> Tensor:
        loss = objective(model, *args, **kw)
        return how(loss, model) if next(calls) == at else loss

    monkeypatch.setattr(step, "objective", exploding)


def infinite_slope(loss: Tensor, model: AEM) -> Tensor:
    """A finite loss whose gradient is not."""
    return loss + (0 * model.energy.final.weight).sqrt().sum()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda loss, _: loss * math.nan, "the loss became nan at step 14"),
        (lambda loss, _: loss + math.inf, "the loss became inf at step 14"),
        (infinite_slope, "the weights stopped being finite at step 14"),
    ],
    ids=["nan", "inf", "slope"],
)
def test_an_exploding_run_stops_and_keeps_the_last_good_checkpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[Tensor, AEM], Tensor],
    message: str,
) -> None:
    checkpoint = tmp_path / "checkpoint.safetensors"
    with monkeypatch.context() as patch:
        explode(patch, 14, how)
        expected = (
            f"{message}; the last good checkpoint is {checkpoint}; try a smaller learning rate"
        )
        with pytest.raises(AemError, match=expected):
            run(folder=tmp_path)
    tensors, metadata = read_tensors(checkpoint, "checkpoint")
    assert metadata["progress"]["step"] == 13
    assert all(t.isfinite().all() for t in tensors.values())
    assert_same(run(folder=tmp_path), run())


def test_an_explosion_without_a_folder_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    explode(monkeypatch, 2, lambda loss, _: loss * math.nan)
    with pytest.raises(AemError, match="at step 2; no checkpoint was written; try"):
        run()


BAD_VALUE = np.where(np.arange(300).reshape(150, 2) == 9, np.nan, TRAIN)


@pytest.mark.parametrize(
    ("train", "validation", "message"),
    [
        (BAD_VALUE, VALIDATION, "column 'x2' of the training data has NaN in row 4"),
        (TRAIN, VALIDATION[:, :1], "the validation data has 1 columns, the model has 2"),
        (TRAIN[:0], VALIDATION, "the training data has no rows"),
        (TRAIN, VALIDATION[:0], "the validation data has no rows"),
    ],
)
def test_bad_rows_are_refused(train: Table, validation: Table, message: str) -> None:
    with pytest.raises(AemError, match=message):
        fit(fresh(), train, validation, SHORT, quiet=True)


def test_rows_outside_a_uniform_proposal_are_refused() -> None:
    bounds = ((-200.0, 200.0), (-1.0, 4.0))
    model = fresh(replace(TINY, proposal="uniform", bounds=bounds))
    with pytest.raises(AemError, match=r"column 'x2' of the training data .* bounds -1.0 … 4.0"):
        fit(model, TRAIN, VALIDATION, SHORT, quiet=True)


def test_contexts_must_fit_the_rows() -> None:
    model = fresh(context=np.random.default_rng(0).normal(size=(150, 2)))
    with pytest.raises(AemError, match="the context has 149 rows, the data 150"):
        fit(model, TRAIN, VALIDATION, SHORT, quiet=True, context=np.zeros((149, 2)))
    with pytest.raises(AemError, match="needs a context of 2"):
        fit(model, TRAIN, VALIDATION, SHORT, quiet=True)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("abacus", "unknown device 'abacus'"),
        pytest.param(
            "cuda",
            "no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_devices_that_are_not_there_are_refused(device: str, message: str) -> None:
    with pytest.raises(AemError, match=message):
        run(replace(SHORT, device=device))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        AemError, match=f"cannot write to {tmp_path}/file/run: a file is in the way"
    ):
        run(folder=tmp_path / "file" / "run")
    assert os.listdir(tmp_path) == ["file"]
