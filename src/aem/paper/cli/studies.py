"""`aem reproduce calibration` and `aem reproduce dimensionality`: the paper's studies of log Ẑ."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from aem.base.devices import choose_device
from aem.base.display import ProgressDisplay
from aem.base.files import finite, write_json
from aem.base.options import Device, seed_option
from aem.base.provenance import provenance
from aem.base.settings import to_mapping
from aem.data.tasks import PLANE_TASKS
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.files import load_model, model_information
from aem.paper.plots import save_figure
from aem.paper.studies import calibration as calibration_study
from aem.paper.studies import dimensionality as dimensionality_study
from aem.paper.studies.calibration import Calibration, quantiles
from aem.paper.studies.drawings import draw_calibration, draw_dimensionality
from aem.tables.sources import FoundRows, find_rows


def calibration(
    model: Annotated[list[Path], typer.Option(help="A model file; again for more models.")],
    out: Annotated[Path, typer.Option(help="Folder for calibration.json and calibration.png.")],
    data: Annotated[
        list[str] | None,
        typer.Option(help="Held-out rows: a file or a name; one for all models, or one for each."),
    ] = None,
    conditionals: Annotated[
        int, typer.Option(help="Conditionals a model.")
    ] = calibration_study.CONDITIONALS,
    seed: Annotated[int, seed_option("Seed of all random numbers.")] = 0,
    device: Device = "auto",
) -> None:
    """Section 5.2: estimates of log Z with 5 to 20,000 samples against its true value."""
    started = time.monotonic()
    chosen = choose_device(device)
    study = calibration_study.CalibrationStudy(conditionals)
    sources = _sources(model, data or [])
    records: list[dict[str, Any]] = []
    for path, source in zip(model, sources, strict=True):
        machine = load_model(path, chosen)
        rows = _held_out(find_rows(source, machine.columns, seed=seed))
        with ProgressDisplay() as progress:
            result = calibration_study.calibrate(
                machine, rows.values, study, seed=seed, report=progress
            )
        records.append(_record(machine, rows, result))
        typer.echo(_sentence(rows.name, result))
    record = {
        "task": "calibration",
        **provenance(study, seed, chosen),
        "seconds": round(time.monotonic() - started, 2),
        "models": records,
    }
    write_json(out / "calibration.json", record)
    save_figure(draw_calibration(records), out / "calibration.png")
    typer.echo(f"wrote {out / 'calibration.json'} and {out / 'calibration.png'}")


def _held_out(rows: FoundRows) -> FoundRows:
    """The validation split, as in the paper; rows of a file or a task are held out as they are."""
    if rows.validation is None or rows.task is not None:
        return rows
    return FoundRows(rows.name, f"{rows.name}, validation split", rows.validation)


def _sources(models: list[Path], data: list[str]) -> list[str]:
    """Return the source of rows for each model: the one given, or that of its file."""
    if len(data) == 1:
        return data * len(models)
    if data and len(data) != len(models):
        raise AemError(
            f"there are {len(data)} data sources for {len(models)} models: give one, or one each"
        )
    return data or [_own_source(path) for path in models]


def _own_source(path: Path) -> str:
    task = model_information(path).get("about", {}).get("task")
    if isinstance(task, dict):
        task = task.get("name")
    if isinstance(task, str) and task:
        return task
    if path.stem in PLANE_TASKS:
        return path.stem
    raise AemError(f"{path} does not say what it was trained on: name held-out rows with --data")


def _record(model: AEM, rows: FoundRows, result: Calibration) -> dict[str, Any]:
    record = {
        "task": rows.name,
        "data": rows.about,
        "config": to_mapping(model.config),
        **asdict(result),
    }
    # log Z = 0 to the last bit makes a relative error infinite, and JSON has no word for it.
    return dict(finite(record))


def _sentence(name: str, result: Calibration) -> str:
    last = {s.kind: s for s in result.spreads}
    q = result.quadrature
    text = (
        f"{name}: quadrature within its error for {q.within_error:.1%} of {result.conditionals:,}"
        f" conditionals (median {q.median:.1e}, largest {q.largest:.1e} nats, {q.mean_nodes:,.0f}"
        f" nodes); {last['iid'].samples:,} samples, median: iid {last['iid'].absolute['q50']:.1e},"
        f" stratified {last['stratified'].absolute['q50']:.1e}"
    )
    if result.divergent:
        text += f"; {result.divergent} more left out, because their normaliser diverges"
    if result.unsettled:
        text += f"; {result.unsettled} trapezoid sums did not settle to seven figures"
    if result.edges:
        text += f"; {result.edges} conditionals have mass at the end of the window"
    return text


def dimensionality(
    out: Annotated[Path, typer.Option(help="Folder for dimensionality.json and its figure.")],
    samples: Annotated[
        int, typer.Option(help="Importance samples a trial.")
    ] = dimensionality_study.SAMPLES,
    trials: Annotated[int, typer.Option(help="Trials a dimension.")] = dimensionality_study.TRIALS,
    seed: Annotated[int, seed_option("Of the draws.")] = 0,
) -> None:
    """Figure 2: importance sampling of a Gaussian in growing dimension."""
    started = time.monotonic()
    settings = dimensionality_study.DimensionalityStudy(samples=samples, trials=trials)
    results = dimensionality_study.study(settings, seed)
    record = {
        "task": "dimensionality",
        **provenance(settings, seed, torch.device("cpu")),
        "seconds": round(time.monotonic() - started, 3),
        "results": [
            {
                "dimension": r.dimension,
                "log_z": {**quantiles(r.log_z), "mean": float(r.log_z.mean())},
                "weight_variance": r.weight_variance,
                "trials": [float(v) for v in r.log_z],
            }
            for r in results
        ],
    }
    write_json(out / "dimensionality.json", record)
    save_figure(draw_dimensionality(record), out / "dimensionality.png")
    typer.echo(f"wrote {out / 'dimensionality.json'} and {out / 'dimensionality.png'}")
