"""The tables of the speed benchmark, from results/bench/*.json and results/precision/*.json."""

import json
from collections.abc import Callable
from typing import Any

from aem.paper.published import AUTHORS_STEP_MS
from tools.render.pages import ROOT, markdown, result

NO_BENCH = "Not measured yet: `make bench`."
SHOWN = 10  # points of a curve


def benches() -> list[dict[str, Any]]:
    """Every run of the speed benchmark."""
    runs = [json.loads(p.read_text()) for p in sorted((ROOT / "results/bench").glob("*.json"))]
    return [run for run in runs if run["task"] == "bench"]


def by_device(table: Callable[[dict[str, Any]], str]) -> str:
    """One table for each device, under its name."""
    parts = [(run["device"], table(run)) for run in benches()]
    return "\n".join(f"**{device}**\n\n{text}" for device, text in parts if text) or f"{NO_BENCH}\n"


def measured(run: dict[str, Any], part: str) -> dict[str, dict[str, dict[str, Any]]]:
    """The measurements of a part, by shape and implementation."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for e in run.get("measurements", []):
        if e["part"] == part:
            title = f"{e['shape']} (D {e['features']}, B {e['batch']}, H {e['hidden']})"
            found.setdefault(title, {})[e["implementation"]] = e
    return found


def step_table(run: dict[str, Any]) -> str:
    """Milliseconds per training step; for ours, also how many times as fast as the textbook's."""
    rows = []
    for shape, by in measured(run, "step").items():
        ours, theirs = by.get("ours", {}), by.get("textbook", {})
        faster = in_brackets(theirs["ms"] / ours["ms"]) if "ms" in theirs and "ms" in ours else ""
        share, peak = ours.get("fraction_of_ceiling"), ours.get("peak_bytes")
        rows.append(
            [
                shape,
                figure(theirs.get("ms")),
                figure(ours.get("ms")) + faster,
                *(figure(by.get(n, {}).get("ms")) for n in ("ours Fourier", "ours torch.compile")),
                "—" if peak is None else f"{peak / 2**20:,.0f}",
                "—" if share is None else f"{100 * share:.0f} %",
            ]
        )
    header = ["ms per step", "textbook", "ours", "ours Fourier", "torch.compile"]
    header += ["peak MiB", "share of ceiling"]
    return markdown(header, rows)


def rate_table(run: dict[str, Any], part: str) -> str:
    """Rows per second; for ours, also how many times the textbook's."""
    names = ("textbook", "ours", "ours Fourier", "zuko NSF", "zuko MAF")
    rows = []
    for shape, by in measured(run, part).items():
        rates = {name: by.get(name, {}).get("rows_per_second") for name in names}
        if not any(rates.values()):
            continue
        cells = []
        for name in names:
            cell, base = figure(rates[name]), rates["textbook"]
            if name.startswith("ours") and base and rates[name]:
                cell += in_brackets(rates[name] / base)
            cells.append(cell)
        rows.append([shape, *cells])
    return markdown(["shape", *names], rows)


def scaling_table(run: dict[str, Any]) -> str:
    """Fitted exponents of the cost of ours."""
    rows = [
        [
            f"{e['what']} against {e['against']}",
            ", ".join(f"{size:,}" for size in e["sizes"]),
            ", ".join(figure(ms) for ms in e["ms"]),
            "—" if e["exponent"] is None else f"{e['exponent']:.2f}",
            ", ".join("—" if b is None else f"{b / 2**20:,.0f}" for b in e["peak_bytes"]),
        ]
        for e in run.get("scaling", [])
    ]
    return markdown(["what", "sizes", "ms", "exponent", "peak MiB"], rows)


def runs_table() -> str:
    """The device, commit and command of each run."""
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
    ]
    header = ["device", "commit", "torch", "command", "took", "bf16 ceiling"]
    return markdown(header, rows, NO_BENCH)


def figure(value: float | None) -> str:
    """Three digits, without an exponent; a dash for what was not measured."""
    if value is None:
        return "—"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def in_brackets(ratio: float) -> str:
    """Return a ratio of speeds in brackets, with one decimal if it is below ten."""
    digits = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"
    return f" ({digits}\N{NO-BREAK SPACE}×)"


def authors_table() -> str:
    """Our step and that of the authors' code, on the same kind of GPU."""
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
    """Validation scores by step in both precisions."""
    record = result("precision/power")
    if record is None:
        return "Not measured yet: `python -m benchmarks.claims.precision`.\n"
    runs = record["runs"]
    steps = runs[0]["steps"]
    chosen = [i for i in range(len(steps)) if (i + 1) % max(1, len(steps) // SHOWN) == 0]
    header = ["step", *(f"{run['precision']}, seed {run['seed']}" for run in runs)]
    rows = [[f"{steps[i]:,}", *(f"{run['validation'][i]:.4f}" for run in runs)] for i in chosen]
    about = f"\n`{record['command']}`, {record['device']}, commit {record['commit']}.\n"
    picture = "![Validation curves of POWER in both precisions](pictures/precision/power.png)\n\n"
    return picture + markdown(header, rows) + about


def busy_table() -> str:
    """The default number of threads and one thread, beside busy processes."""
    record = result("bench/contention")
    if record is None:
        return "Not measured yet: `python -m benchmarks.speed.contention`.\n"
    speeds = {
        (m["workload"], m["neighbours"], m["tree"], m["threads"]): m for m in record["measurements"]
    }
    ratios = {(c["workload"], c["neighbours"], c["tree"]): c for c in record["comparisons"]}
    trees = [t for t in ("before", "after") if any(m["tree"] == t for m in record["measurements"])]
    header = ["what", "busy processes"]
    for tree in trees:
        earlier = ", before" if tree == "before" else ""
        header += [f"{name}{earlier}" for name in ("one thread", "default", "default / one")]
    rows = []
    for workload, count in dict.fromkeys(key[:2] for key in speeds):
        unit = next(m["unit"] for m in record["measurements"] if m["workload"] == workload)
        row = [f"{workload}, {unit}", str(count)]
        for tree in trees:
            found = (speeds.get((workload, count, tree, name)) for name in ("one", "default"))
            row += [*map(busy_speed, found), busy_ratio(ratios.get((workload, count, tree)))]
        rows.append([*row, busy_target(ratios.get((workload, count, "after")))])
    earlier = f", before: {record['before_commit']}" if "before" in trees else ""
    about = (
        f"\n`{record['command']}`, {record['device']}, {record['cores']} cores, "
        f"commit {record['commit']}{earlier}, {record['seconds']:.0f} s.\n"
    )
    return markdown([*header, "target"], rows) + about


def busy_speed(measurement: dict[str, Any] | None) -> str:
    """Return a rate or seconds, with a sign where a turn was stopped at its limit."""
    if measurement is None:
        return "—"
    if measurement["at_least"] is None:
        return figure(measurement["value"])
    sign = ">" if measurement["unit"] == "s" else "<"
    return f"{sign} {figure(measurement['value'])}"


def busy_ratio(comparison: dict[str, Any] | None) -> str:
    """Return a ratio of speeds, or a bound on it."""
    if comparison is None or comparison["ratio"] is None:
        return "—"
    sign = {"exact": "", "at most": "< ", "at least": "> "}[comparison["bound"]]
    return f"{sign}{comparison['ratio']:.2f}"


def busy_target(comparison: dict[str, Any] | None) -> str:
    """Return the target of a ratio, and whether it was met."""
    if comparison is None or comparison["target"] is None:
        return "—"
    verdict = {True: ", met", False: ", missed", None: ""}[comparison["met"]]
    return f"≥ {comparison['target']}{verdict}"


def starting_table() -> str:
    """Seconds until the program has answered, beside those of an older checkout."""
    record = result("bench/starting")
    if record is None:
        return "Not measured yet: `python -m benchmarks.speed.starting`.\n"
    medians: dict[str, dict[str, float]] = {}
    for m in record["measurements"]:
        medians.setdefault(m["start"], {})[m["tree"]] = m["median"]
    header, rows, before = ["command", "now, s"], [], ""
    if record["before_commit"] is not None:
        header += ["before, s", "times as fast"]
        before = f", before: {record['before_commit']}"
    for start, by in medians.items():
        rows.append([f"`{start}`", figure(by["after"])])
        if "before" in by:
            rows[-1] += [figure(by["before"]), f"{by['before'] / by['after']:.1f}"]
    about = (
        f"\n`{record['command']}`, {record['device']}, {record['cores']} cores, "
        f"commit {record['commit']}{before}, {record['seconds']:.0f} s.\n"
    )
    return markdown(header, rows) + about


def scoring_table() -> str:
    """Energies per row and rows per second of two versions, by model and tolerance."""
    record = result("bench/scoring")
    if record is None:
        return "Not measured yet: `python -m benchmarks.speed.scoring`.\n"
    pairs: dict[tuple[str, float], dict[str, dict[str, Any]]] = {}
    for m in record["measurements"]:
        pairs.setdefault((m["model"], m["tolerance"]), {})[m["tree"]] = m
    header = ["model", "columns", "nats per row", "energies per row, before", "now", "ratio"]
    header += ["rows per second, before", "now", "times as fast", "slowest row / median"]
    rows = []
    for (model, tolerance), by in pairs.items():
        old, new = by["before"], by["after"]
        row = [model, f"{new['features']}", f"{tolerance:g}"]
        row += [f"{m['nodes']:,.0f}" for m in (old, new)]
        row += [f"{new['nodes'] / old['nodes']:.2f}"]
        row += [figure(m["rows_per_second"]) for m in (old, new)]
        row += [f"{new['rows_per_second'] / old['rows_per_second']:.1f}"]
        rows.append([*row, f"{new['most_over_median']:.1f}"])
    apart = max(m["apart"] for m in record["measurements"])
    about = (
        f"\nScores of both versions differ by at most {apart:.2f} of the errors that they state. "
        f"`{record['command']}`, {record['device']}, one thread each, commit {record['commit']}, "
        f"before: {record['before_commit']}, {record['seconds']:.0f} s.\n"
    )
    return markdown(header, rows) + about


def house_table() -> str:
    """Milliseconds per training step before and after the code was rearranged."""
    record = result("bench/steps")
    if record is None:
        return "Not measured yet.\n"
    before, after = record["before"], record["after"]
    then, rows = measured(before, "step"), []
    for shape, by in measured(after, "step").items():
        pairs = [(then[shape][name]["ms"], by[name]["ms"]) for name in ("ours", "ours Fourier")]
        rows.append(
            [shape, *(cell for a, b in pairs for cell in (figure(a), figure(b), f"{b / a:.2f}"))]
        )
    header = ["ms per step", "before", "after", "ratio"]
    header += ["Fourier, before", "Fourier, after", "ratio"]
    about = (
        f"\n`{after['command']}`, {after['device']}, commit {after['commit']}, "
        f"before: {before['commit']}, {before['seconds'] + after['seconds']:.0f} s.\n"
    )
    return markdown(header, rows) + about


def gradients_table() -> str:
    """What a gradient costs beside its log density, and how exact it is."""
    record = result("bench/gradients")
    if record is None:
        return "Not measured yet: `python -m benchmarks.speed.gradients`.\n"
    measurements = record["measurements"]
    tolerances = list(measurements[0]["relative_errors"])
    header = ["model", "log density and gradient / log density alone"]
    header += [f"relative error of the gradient at a tolerance of {t} nats" for t in tolerances]
    rows = [
        [m["name"], f"{m['ratio']:.1f}", *(f"{m['relative_errors'][t]:.0e}" for t in tolerances)]
        for m in measurements
    ]
    about = (
        f"\n`{record['command']}`, {record['device']}, {record['cores']} cores, errors against a "
        f"tolerance of {record['reference_tolerance']:g} nats, commit {record['commit']}.\n"
    )
    return markdown(header, rows) + about


TABLES: dict[str, Callable[[], str]] = {
    "speed_authors": authors_table,
    "speed_busy": busy_table,
    "speed_precision": precision_table,
    "speed_runs": runs_table,
    "speed_starting": starting_table,
    "speed_gradients": gradients_table,
    "speed_house": house_table,
    "speed_step": lambda: by_device(step_table),
    "speed_scoring": scoring_table,
    "speed_score": lambda: by_device(lambda run: rate_table(run, "score")),
    "speed_sample": lambda: by_device(lambda run: rate_table(run, "sample")),
    "speed_scaling": lambda: by_device(scaling_table),
}
