"""A model is one safe file: what it holds, and how it is read back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aem.base.files import (
    as_mapping,
    blaming_file,
    header,
    read_columns,
    read_tensors,
    write_tensors,
)
from aem.base.settings import RemovedSetting, from_mapping
from aem.config import ModelConfig
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.transforms.normal_scores import Lens, lenses_from

TREATED = {  # what a fit tells about columns that a model does not see as they are
    "offsets": "columns far from zero",
    "lenses": "columns seen through a lens",
}


def read_config(values: Any) -> ModelConfig:
    """A model's configuration as a file holds it."""
    given = as_mapping(values, "config")
    try:
        return from_mapping(ModelConfig, given)
    except RemovedSetting:
        raise
    except AemError as error:
        raise AemError(f"{error}; the file may be from a newer version of aem") from error


def read_lenses(entries: Any, columns: Sequence[str]) -> tuple[Lens, ...]:
    """Lenses of some columns as a file holds them: through two points or more, rising."""
    lenses = lenses_from(entries)
    for lens in lenses:
        points = np.array((lens.values, lens.scores), dtype=np.float64)
        rising = points.shape[1] > 1 and bool((np.diff(points) > 0).all())
        if lens.column not in columns or not rising or not np.isfinite(points).all():
            raise AemError(f"the lens of column '{lens.column}' is damaged")
    return lenses


def save_model(model: AEM, path: str | Path, **about: Any) -> None:
    """Save a model; `about` may hold anything JSON can, for instance how it was trained."""
    write_tensors(Path(path), model.state_dict(), {**header("model", model), "about": about})


def load_model(
    path: str | Path, device: str | torch.device = "cpu", *, as_table: bool = False
) -> AEM:
    """Load a model in evaluation mode. No code in the file is ever run.

    Some models do not see the values themselves, but something that only a `TableModel` knows.
    """
    path = Path(path)
    tensors, metadata = _read_model(path)
    if not as_table:
        for key, what in TREATED.items():
            if metadata["about"].get(key):
                raise AemError(
                    f"{path} has {what}, which only aem score, sample and report can treat"
                )
    with blaming_file(path, "model"):
        config, columns = read_config(metadata["config"]), read_columns(metadata["columns"])
        model = AEM(config, columns=columns).to(tensors["shift"].dtype)
        model.load_state_dict(tensors)
    return model.to(device).eval()


def model_information(path: str | Path) -> dict[str, Any]:
    """What a model file says about itself."""
    return _read_model(Path(path))[1]


def _read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a model file; what it tells about its making is a table."""
    tensors, metadata = read_tensors(path, "model")
    with blaming_file(path, "model"):
        about = as_mapping(metadata.get("about") or {}, "about")
    return tensors, {**metadata, "about": about}
