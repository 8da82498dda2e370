"""The tables of the speed benchmark, from results/bench/*.json and results/precision/*.json."""

import json
from collections.abc import Callable
from typing import Any

from pages import ROOT, markdown, result

from aem.published import AUTHORS_STEP_MS

NO_BENCH = "Not measured yet: `make bench`."
SHOWN = 10  # points of a curve


def benches() -> list[dict[str, Any]]:
    """Every run of the speed benchmark."""
    return [json.loads(p.read_text()) for p in sorted((ROOT / "results/bench").glob("*.json"))]


def speed_table(part: str, key: str, header: str, details: str) -> str:
    """One part of the speed benchmark, device by device."""
    rows = []
    for run in benches():
        entries = [e for e in run.get("measurements", []) if e["part"] == part]
        base = {e["shape"]: e for e in entries if e["implementation"] == "textbook"}
        for e in entries:
            reference = base.get(e["shape"], {})
            ratio = "—"
            if key in e and key in reference:
                # Milliseconds are better small, rows a second large.
                faster = reference[key] / e[key] if key == "ms" else e[key] / reference[key]
                ratio = f"{faster:.1f}"
            peak, detail = e.get("peak_bytes"), e.get(details)
            if details == "fraction_of_ceiling" and detail is not None:
                detail = f"{100 * detail:.1f} %"
            rows.append(
                [
                    run["device"],
                    f"{e['shape']} (D {e['features']}, B {e['batch']}, H {e['hidden']})",
                    e["implementation"],
                    figure(e[key]) if key in e else f"skipped: {e.get('skipped', '')}",
                    ratio,
                    "—" if peak is None else f"{peak / 2**20:,.0f}",
                    "—" if detail is None else str(detail),
                ]
            )
    columns = ["device", "shape", "implementation", header, "× textbook", "peak MiB"]
    return markdown([*columns, details.replace("_", " ")], rows, NO_BENCH)


def scaling_table() -> str:
    """Fitted exponents of the cost of ours."""
    rows = [
        [
            run["device"],
            f"{e['what']} against {e['against']}",
            ", ".join(f"{size:,}" for size in e["sizes"]),
            ", ".join(figure(ms) for ms in e["ms"]),
            "—" if e["exponent"] is None else f"{e['exponent']:.2f}",
            ", ".join("—" if b is None else f"{b / 2**20:,.0f}" for b in e["peak_bytes"]),
        ]
        for run in benches()
        for e in run.get("scaling", [])
    ]
    header = ["device", "what", "sizes", "ms", "exponent", "peak MiB"]
    return markdown(header, rows, NO_BENCH)


def runs_table() -> str:
    """Where the numbers come from."""
    rows = [
        [
            run["device"],
            str(run.get("commit")),
            run["torch"],
            f"`{run['command']}`",
            f"{run['seconds']:.0f} s",
            "—" if run.get("ceiling_tflops") is None else f"{run['ceiling_tflops']:.0f} TFLOP/s",
        ]
        for run in benches()
        if "measurements" in run
    ]
    header = ["device", "commit", "torch", "command", "took", "bf16 ceiling"]
    return markdown(header, rows, NO_BENCH)


def figure(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def authors_table() -> str:
    """Our step on the GPU the authors' code was measured on, beside it."""
    rows = []
    for run in benches():
        if "H200" not in run["device"]:
            continue
        ours = {
            e["shape"]: e["ms"]
            for e in run["measurements"]
            if e["part"] == "step" and e["implementation"] == "ours" and "ms" in e
        }
        rows += [
            [shape, figure(theirs), f"{ours[shape]:.2f}", f"{theirs / ours[shape]:.0f}"]
            for shape, theirs in AUTHORS_STEP_MS.items()
            if shape in ours
        ]
    header = ["shape", "the authors' code, ms", "ours, ms", "times as fast"]
    return markdown(header, rows, NO_BENCH)


def precision_table() -> str:
    """Validation by step in both precisions."""
    record = result("precision/power")
    if record is None:
        return "Not measured yet: `python benchmarks/precision.py`.\n"
    runs = record["runs"]
    steps = runs[0]["steps"]
    chosen = [i for i in range(len(steps)) if (i + 1) % max(1, len(steps) // SHOWN) == 0]
    header = ["step", *(f"{run['precision']}, seed {run['seed']}" for run in runs)]
    rows = [[f"{steps[i]:,}", *(f"{run['validation'][i]:.4f}" for run in runs)] for i in chosen]
    rows.append(["seconds", *(f"{run['seconds']:.0f}" for run in runs)])
    about = f"\n`{record['command']}`, {record['device']}, commit {record['commit']}.\n"
    picture = "![Validation curves of POWER in both precisions](../results/precision/power.png)\n\n"
    return picture + markdown(header, rows) + about


TABLES: dict[str, Callable[[], str]] = {
    "speed_authors": authors_table,
    "speed_precision": precision_table,
    "speed_runs": runs_table,
    "speed_step": lambda: speed_table("step", "ms", "ms a step", "fraction_of_ceiling"),
    "speed_score": lambda: speed_table("score", "rows_per_second", "rows a second", "accuracy"),
    "speed_sample": lambda: speed_table(
        "sample", "rows_per_second", "rows a second", "repetitions"
    ),
    "speed_scaling": scaling_table,
}
