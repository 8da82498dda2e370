"""`aem evaluate`: the log-likelihood of a table by quadrature, importance sampling and AEM-KDE."""

import math
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aem.base.console import as_json_text, is_quiet, remark, say
from aem.base.display import ProgressDisplay
from aem.base.files import finite, write_json
from aem.base.options import Delimiter, Device, Drop, Model, seed_option
from aem.base.provenance import provenance
from aem.cli.places import check_place, left_out_of, load_any_model
from aem.cli.streams import IN_PLACE
from aem.conditionals.normalizer import Quadrature
from aem.evaluation.kde import KDE
from aem.evaluation.kde import SAMPLES as KDE_SAMPLES
from aem.evaluation.side_by_side import IMPORTANCE_SAMPLES, SideBySide, Summary
from aem.evaluation.side_by_side import evaluate as score
from aem.tables.scores import TableScores
from aem.tables.sources import TASK_ROWS, find_rows


def evaluate(
    model: Model,
    data: Annotated[
        str,
        typer.Argument(
            help="CSV or other text, Parquet, Feather or .npy; a task (spirals, …); or a name that "
            "`aem data` lists."
        ),
    ],
    validation: Annotated[
        str | None,
        typer.Option(help="Rows that fit AEM-KDE; without any, a tenth of a file is set aside."),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Importance samples per conditional; 0: none. The paper: 20,000.")
    ] = IMPORTANCE_SAMPLES,
    kde_samples: Annotated[
        int, typer.Option(help="Kernels per conditional; 0: no AEM-KDE. The paper: 20,000.")
    ] = KDE_SAMPLES,
    tolerance: Annotated[
        float, typer.Option(help="Largest error of a row's log density, in nats.")
    ] = Quadrature.tolerance,
    drop: Drop = None,
    delimiter: Delimiter = None,
    rows: Annotated[
        int | None,
        typer.Option(help=f"Rows to draw ({TASK_ROWS:,} of a task) or to take (all of a file)."),
    ] = None,
    seed: Annotated[int, seed_option("Seed of all random numbers.")] = 0,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")] = None,
) -> None:
    """Compare log-likelihoods by quadrature, importance sampling, AEM-KDE and the proposal."""
    started = time.monotonic()
    if out is not None:
        check_place(out, model, data, *([validation] if validation else []))
    table = load_any_model(model, device)
    density = TableScores.of(table)
    dropped, known = left_out_of(table, drop)
    how: dict[str, Any] = {"drop": dropped, "ignore": known, "delimiter": delimiter}
    found = find_rows(data, table.columns, rows=rows, seed=seed, **how)
    remark(*found.remarks)
    held_out = found.validation
    if validation is not None and kde_samples:
        further = find_rows(validation, table.columns, seed=seed + 1, **how)
        remark(*further.remarks)
        held_out = further.values
    truth = None if found.task is None else found.task.log_prob(found.values)
    with ProgressDisplay() as progress:
        result = score(
            density,
            found.values,
            validation=held_out,
            truth=truth,
            labels=found.labels,
            samples=samples,
            kde_samples=kde_samples,
            tolerance=tolerance,
            seed=seed,
            report=progress,
        )
    limit = None if found.task is None else -found.task.entropy()
    record = {
        "task": found.name,
        **provenance(density.config, seed, density.device),
        "seconds": round(time.monotonic() - started, 2),
        "tolerance": tolerance,
        **as_record(result, limit),
    }
    before = out is not None and os.path.exists(out)
    if out is not None:
        write_json(out, record)
    if as_json:
        say(as_json_text(record))
    else:
        _show(result, f"{model.name} on {found.about}", limit)
        if density.no_kernels and kde_samples:
            say(f"{density.no_kernels}: it has no score here.")
        if out is not None and not is_quiet():
            say(f"The JSON is {out}{IN_PLACE if before else ''}.")


def as_record(result: SideBySide, limit: float | None = None) -> dict[str, Any]:
    """Return the evaluation as JSON can hold it: what is not finite becomes null.

    Parameters
    ----------
    result
        all scores of the rows.
    limit
        the best possible mean log density, where it is known.
    """
    settled = result.settled
    record: dict[str, Any] = {
        "rows": result.quadrature.rows,
        "test_log_prob": result.quadrature.mean,
        "test_log_prob_2se": result.quadrature.two_se,
        "test_log_prob_error": result.error,
        "proposal_log_prob": result.proposal.mean,
        "importance_log_prob": result.importance and result.importance.mean,
        "importance_samples": result.importance_samples,
        "importance_bias": result.importance_bias,
        "importance_noise_2se": result.importance_noise,
        "kde_log_prob": result.kde and result.kde.mean,
        "limit": limit,
        "gap": result.gap and result.gap.mean,
        "gap_2se": result.gap and result.gap.two_se,
        "summaries": {
            name: asdict(summary)
            for name, summary in _summaries(result)
            if isinstance(summary, Summary)
        },
        "kde": result.kernels
        and {
            **_kernels(result.kernels),
            "fitted_on_rows": result.kde_fit_rows,
            "rows_set_aside": result.set_aside,
        },
        "refinement": {
            **settled.record(),
            "refinements": settled.refinements,
            "tolerance": settled.tolerance,
            "rows_with_tolerance_not_met": [int(i) for i in settled.unmet],
        },
    }
    plain: dict[str, Any] = finite(record)
    return plain


def _kernels(kernels: list[KDE]) -> dict[str, Any]:
    """Return the parameters of AEM-KDE, of a model or of all members of an ensemble."""
    return asdict(kernels[0]) if len(kernels) == 1 else {"members": [asdict(k) for k in kernels]}


def _summaries(result: SideBySide) -> list[tuple[str, Summary | None]]:
    return [
        ("quadrature", result.quadrature),
        ("importance", result.importance),
        ("kde", result.kde),
        ("proposal", result.proposal),
        ("truth", result.truth),
    ]


def _show(result: SideBySide, title: str, limit: float | None) -> None:
    labels = {
        "quadrature": "AEM, quadrature",
        "importance": f"AEM, {result.importance_samples:,} samples",
        "kde": "AEM-KDE" + (f", {result.kernels[0].samples:,} kernels" if result.kernels else ""),
        "proposal": "proposal",
        "truth": "the true density",
    }
    table = Table(title=f"{escape(title)}: log-likelihood per row, in nats", title_justify="left")
    table.add_column("score")
    errors = {"quadrature": f"≤ {result.error:.0e}"}
    if result.importance_noise is not None:
        errors["importance"] = f"± {result.importance_noise:.0e}"
    for heading in ("mean", "± 2 s.e.", "error", "median", "worst", "in row"):
        table.add_column(heading, justify="right")
    for name, s in _summaries(result):
        if s is not None:
            table.add_row(
                labels[name],
                f"{s.mean:.4f}",
                "" if math.isnan(s.two_se) else f"{s.two_se:.4f}",
                errors.get(name, ""),
                f"{s.median:.4f}",
                f"{s.worst:.3f}",
                str(s.worst_row),
            )
    Console().print(table)
    say(*sentences(result, limit))


def sentences(result: SideBySide, limit: float | None = None) -> list[str]:
    """Return sentences that explain the numbers.

    Parameters
    ----------
    result
        all scores of the rows.
    limit
        the best possible mean log density, where it is known.
    """
    settled = result.settled
    change = (
        f"changed the mean by {settled.moved:.1e} nats, with {settled.nodes[1]:,.0f} instead of"
        f" {settled.nodes[0]:,.0f} nodes per conditional; its stated error was {settled.claimed:.1e}"
    )
    lines = []
    if settled.held_still:
        lines.append(
            f"The quadrature has converged to {result.quadrature.mean:.6f}: refinement {change}."
        )
    else:
        lines.append(f"The quadrature has not converged, so do not quote it: refinement {change}.")
    if settled.rows_beyond_error:
        lines.append(f"{settled.rows_beyond_error:,} rows changed by more than their stated error.")
    if len(settled.unmet):
        named = ", ".join(map(str, settled.unmet[:5])) + (", …" if len(settled.unmet) > 5 else "")
        lines.append(f"{len(settled.unmet):,} rows do not meet the tolerance: {named}.")
    if result.quadrature.impossible:
        lines.append(
            f"{result.quadrature.impossible:,} rows have density zero, and so the mean is −inf."
        )
    if result.importance_noise is not None:
        lines.append(
            f"Importance sampling: the draws add an error of ± {result.importance_noise:.1e} (two"
            f" standard errors) and a bias of about {result.importance_bias:.1e} to its mean."
        )
    if result.kernels:
        fits = " and ".join(
            f"bandwidth {fit.bandwidth:.2g} standard deviations, proposal weight"
            f" {fit.proposal_weight:.2g}"
            for fit in result.kernels
        )
        source = "set aside from the data" if result.set_aside else "of validation data"
        lines.append(f"AEM-KDE: {fits}, fitted on {result.kde_fit_rows:,} rows {source}.")
    if limit is not None and result.gap is not None:
        lines.append(
            f"The highest possible expectation is {limit:.4f}; on these rows the model is"
            f" {result.gap.mean:.4f} ± {result.gap.two_se:.4f} below the true density."
        )
    return lines
