"""Files of AEMs, and the parts of other files that contain AEMs.

The metadata of a file has these keys: `columns` (names, and what kind of column each
is), `transforms` (from the columns of the table to those a model reads), `model` (its settings; its
weights are the tensors), `left_out` (columns of the data that took no part in the fit; not in every
file) and `about`, information on how the model was made, which affects nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aem.base.files import as_mapping, blaming_file, header, read_tensors, write_tensors
from aem.base.settings import RemovedSetting, completed, from_mapping, to_mapping
from aem.config import PROPOSALS, ModelConfig
from aem.errors import AemError
from aem.model.aem import AEM

NUMBER = "number"  # the kind of a column that a model sees as it is
OF_A_TABLE = ("model", "prior", "detector")  # kinds of files with one model in them


def save_model(model: AEM, path: str | Path, **about: Any) -> None:
    """Save a model.

    Parameters
    ----------
    model
        the model; the type of its weights is kept.
    path
        the file to write, whole or not at all.
    about
        anything JSON can hold, for instance how the model was trained; `model_information` gives it
        back.
    """
    write_tensors(Path(path), model.state_dict(), {**content(model), "about": about})


def content(model: AEM, kind: str = "model") -> dict[str, Any]:
    """Return the metadata of a file that holds a model of columns as they are.

    Parameters
    ----------
    model
        a model whose columns are those of the file.
    kind
        what else the file is, where it is more than a model.
    """
    return {
        **header(kind),
        "columns": [{"name": name, "kind": NUMBER} for name in model.columns],
        "transforms": [],
        "model": model_entry(model),
    }


def model_entry(model: AEM) -> dict[str, Any]:
    """Return the metadata of a model: its settings.

    Parameters
    ----------
    model
        a model whose columns are those of the file.
    """
    return {"config": to_mapping(model.config)}


def load_model(path: str | Path, device: str | torch.device = "cpu") -> AEM:
    """Load a model in evaluation mode. No code in the file is ever run.

    Models with transforms or discrete columns are refused; load them with `aem.TableModel.load`.

    Parameters
    ----------
    path
        a file that `save_model`, `aem fit` or `aem reproduce` wrote.
    device
        device of the model.
    """
    path = Path(path)
    tensors, metadata = read_tensors(path, *OF_A_TABLE)
    with blaming_file(path, "model"):
        columns = read_columns(metadata["columns"])
        treated = [column["name"] for column in columns if column["kind"] != NUMBER]
        if not (metadata["transforms"] or treated):
            names = [column["name"] for column in columns]
            return read_model(metadata["model"], tensors, names, device)
    what = "discrete columns" if treated else "columns that it transforms"
    raise AemError(f"{path} has {what}: load it with aem.TableModel.load")


def read_model(
    entry: Any,
    tensors: Mapping[str, Tensor],
    columns: Sequence[str],
    device: str | torch.device = "cpu",
) -> AEM:
    """Build a model from the metadata and tensors of a file.

    Parameters
    ----------
    entry
        the file's `model` key.
    tensors
        the weights by name.
    columns
        names of the columns as the model reads them.
    device
        device of the model.
    """
    config = as_mapping(as_mapping(entry, "model")["config"], "config")
    model = AEM(_read_config(config), columns=columns)
    model.to(tensors["standardisation.shift"].dtype).load_state_dict(tensors)
    return model.to(device).eval()


def _read_config(given: dict[str, Any]) -> ModelConfig:
    proposal = given.get("proposal", next(iter(PROPOSALS)))
    if proposal not in PROPOSALS:
        raise AemError(
            f"the proposal '{proposal}' is not in aem.config.PROPOSALS: register it there before "
            "loading if it is your own, otherwise the file may be from a newer version of aem"
        )
    try:
        return from_mapping(ModelConfig, completed(ModelConfig(), given))
    except RemovedSetting:
        raise
    except AemError as error:
        raise AemError(f"{error}; the file may be from a newer version of aem") from error


def read_columns(entries: Any) -> list[dict[str, Any]]:
    """Check the names and kinds of columns in a file.

    Parameters
    ----------
    entries
        the file's `columns` key.
    """
    if not isinstance(entries, list) or not all(_is_column(entry) for entry in entries):
        raise AemError("'columns' is not a list of columns, each with a name and a kind")
    twice = [name for name, count in Counter(e["name"] for e in entries).items() if count > 1]
    if twice:
        raise AemError(f"there is more than one column '{twice[0]}'")
    return entries


def _is_column(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(k), str) for k in ("name", "kind"))


def model_information(path: str | Path) -> dict[str, Any]:
    """Return the metadata of a file of models, without building the models.

    Parameters
    ----------
    path
        a file that `save_model`, `aem fit` or `aem reproduce` wrote.
    """
    metadata = read_tensors(Path(path), *OF_A_TABLE, "ensemble")[1]
    with blaming_file(Path(path), "model"):
        return {**metadata, "about": as_mapping(metadata.get("about") or {}, "about")}
