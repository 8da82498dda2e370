"""The file of an outlier detector: its density, the spread of its looks, its threshold."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aem.base.files import as_mapping, blaming_file, read_tensors
from aem.errors import AemError
from aem.tables.detector.views import Views
from aem.tables.files import load_single, save_table

KIND = "detector"
LOOKS = 3


def save_detector(views: Views, threshold: float, path: str | Path, **settings: Any) -> None:
    """Write a detector.

    Parameters
    ----------
    views
        the fitted table, with the middle and the spread of each look at its rows.
    threshold
        the score below which rows are outliers.
    path
        the file to write, whole or not at all.
    settings
        what else the estimator is to have again, as JSON can hold it.
    """
    detector = {
        "middle": views.middle.tolist(),
        "spread": views.spread.tolist(),
        "threshold": threshold,
        **settings,
    }
    save_table(views.table, path, KIND, detector=detector)


def load_detector(
    path: str | Path, device: str | torch.device = "cpu"
) -> tuple[Views, float, dict[str, Any]]:
    """Read a detector: its looks, its threshold, and the settings it was saved with."""
    path = Path(path)
    metadata = read_tensors(path, KIND, "model")[1]
    if metadata["kind"] != KIND:
        raise AemError(
            f"{path} holds a density without a threshold: load it with aem.TableModel.load, or fit "
            "the detector again if aem 0.1 saved it"
        )
    table = load_single(path, device)
    with blaming_file(path, KIND):
        kept = dict(as_mapping(metadata["detector"], "detector"))
        middle, spread = (np.array(kept.pop(name), dtype=float) for name in ("middle", "spread"))
        threshold = float(kept.pop("threshold"))
        sound = middle.shape == spread.shape == (LOOKS,) and bool((spread > 0).all())
        if not sound or not np.isfinite(middle).all() or not math.isfinite(threshold):
            raise AemError("its threshold or the spread of its scores is damaged")
    return Views(table, middle, spread), threshold, kept
