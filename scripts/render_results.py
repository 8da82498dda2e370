"""Write the tables of README and docs from results/*.json, so that no number is ever typed.

A page holds pairs of markers, <!-- results:NAME --> and <!-- /results -->; what stands between them
belongs to this script. With --check nothing is written and a stale page is an error.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import render_exactness
import render_practice
import render_tables
import render_vae

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "docs/results.md",
    "docs/speed.md",
    "docs/experiments.md",
    "docs/exactness.md",
    "docs/vae.md",
)
PLANE = ("spirals", "checkerboard", "diamond", "image", "einstein")
MARKED = re.compile(r"(<!-- results:(\w+) -->\n).*?(<!-- /results -->)", re.DOTALL)


def result(name: str) -> dict[str, Any] | None:
    """One result file, if it is there."""
    path = ROOT / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def plane_table(preset: str) -> str:
    """Distance from the best possible, task by task."""
    rows = []
    for task in PLANE:
        r = result(f"{task}/{preset}")
        if r is not None:
            rows.append(
                [
                    task,
                    f"{r['limit']:.3f}",
                    f"{r['proposal_gap']:.4f}",
                    f"**{r['gap']:.4f}** ± {r['gap_2se']:.4f}",
                    f"{r['test_log_prob_error']:.0e}",
                    f"{r['steps']:,} steps, {r['seconds']:.0f} s",
                    r["device"],
                ]
            )
    header = [
        "task",
        "best possible (nats)",
        "proposal below it",
        "AEM below it",
        "error of log p",
        "training",
        "device",
    ]
    return markdown(header, rows)


def seeds_table() -> str:
    """Twenty seeds a task."""
    r = result("seeds/fast")
    if r is None:
        return ""
    rows = [
        [
            task,
            str(len(gaps)),
            f"{min(gaps):.4f}",
            f"{sorted(gaps)[len(gaps) // 2]:.4f}",
            f"{max(gaps):.4f}",
        ]
        for task, gaps in r["gaps"].items()
    ]
    return markdown(["task", "seeds", "smallest gap", "median gap", "largest gap"], rows)


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
    return markdown([*columns, details.replace("_", " ")], rows) if rows else NO_BENCH


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
    return markdown(header, rows) if rows else NO_BENCH


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
    return markdown(header, rows) if rows else NO_BENCH


def figure(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


NO_BENCH = "Not measured yet: `make bench`.\n"
TABLES: dict[str, Callable[[], str]] = {
    **render_exactness.TABLES,
    **render_practice.TABLES,
    **render_tables.TABLES,
    **render_vae.TABLES,
    "plane_best": lambda: plane_table("best"),
    "plane_fast": lambda: plane_table("fast"),
    "seeds": seeds_table,
    "speed_runs": runs_table,
    "speed_step": lambda: speed_table("step", "ms", "ms a step", "fraction_of_ceiling"),
    "speed_score": lambda: speed_table("score", "rows_per_second", "rows a second", "accuracy"),
    "speed_sample": lambda: speed_table(
        "sample", "rows_per_second", "rows a second", "repetitions"
    ),
    "speed_scaling": scaling_table,
}


def render(text: str) -> str:
    """Fill every pair of markers."""
    return MARKED.sub(lambda m: m[1] + TABLES[m[2]]() + m[3], text)


def main() -> None:
    """Rewrite the pages, or check them."""
    stale = []
    for name in PAGES:
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        fresh = render(text)
        if fresh != text:
            stale.append(name)
            if "--check" not in sys.argv:
                page.write_text(fresh, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"not up to date with results/: {', '.join(stale)}; run make results")


if __name__ == "__main__":
    main()
