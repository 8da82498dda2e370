"""The file of an outlier detector: its density, the scale of its scores, its threshold."""

import math
from pathlib import Path

import numpy as np
import torch

from aem.base.files import as_mapping, blaming_file, read_tensors
from aem.errors import AemError
from aem.tables.detector.normality import Normality
from aem.tables.files import load_single, save_table

KIND = "detector"
LOOKS = 3
MOST_CONTAMINATED = 0.5


def save_detector(
    normality: Normality, threshold: float, contamination: float, path: str | Path
) -> None:
    """Write a detector.

    Parameters
    ----------
    normality
        the fitted table, with the median and the spread of each view of its rows.
    threshold
        the score below which rows are outliers.
    contamination
        the share of rows like the fitted that are to lie there.
    path
        the file to write, whole or not at all.
    """
    detector = {
        "middle": normality.middle.tolist(),
        "spread": normality.spread.tolist(),
        "threshold": threshold,
        "contamination": contamination,
    }
    save_table(normality.table, path, KIND, detector=detector)


def load_detector(
    path: str | Path, device: str | torch.device = "cpu"
) -> tuple[Normality, float, float]:
    """Read the parts of an outlier detector.

    Parameters
    ----------
    path
        what `save_detector` wrote.
    device
        device of the model.

    Returns
    -------
    normality : Normality
        the fitted table, with the median and the spread of each view of its rows.
    threshold : float
        the score below which rows are outliers.
    contamination : float
        the share of rows like the fitted that is to lie there.
    """
    path = Path(path)
    metadata = read_tensors(path, KIND, "model")[1]
    if metadata["kind"] != KIND:
        raise AemError(
            f"{path} holds a density without a threshold: load it with aem.TableModel.load, or fit "
            "the detector again if aem 0.1 saved it"
        )
    table = load_single(path, device)
    with blaming_file(path, KIND):
        kept = as_mapping(metadata["detector"], "detector")
        middle, spread = (np.array(kept[name], dtype=float) for name in ("middle", "spread"))
        threshold, contamination = float(kept["threshold"]), float(kept["contamination"])
        looks = np.stack((middle, spread))  # as many of one as of the other
        sound = looks.shape == (2, LOOKS) and np.isfinite(looks).all() and (spread > 0).all()
        if not (sound and math.isfinite(threshold) and 0 < contamination <= MOST_CONTAMINATED):
            raise AemError("its threshold or the spread of its scores is damaged")
    return Normality(table, middle, spread), threshold, contamination
