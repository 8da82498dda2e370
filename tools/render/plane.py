"""The tables of the tasks in the plane, from results/<task>/*.json and results/seeds/fast.json."""

from typing import Any

from tools.render.pages import markdown, result

PLANE = ("spirals", "checkerboard", "diamond", "image", "einstein")


def plane_table(preset: str) -> str:
    """The gap to the best possible score of each task; its estimates where runs have them."""
    found = [(task, r) for task in PLANE if (r := result(f"{task}/{preset}")) is not None]
    estimated = any(r.get("importance") for _, r in found)
    rows = []
    for task, r in found:
        importance = r.get("importance")
        lost = r.get("rows_without_density", 0)
        rows.append(
            [
                task,
                f"{r['config']['task']['train_rows']:,}",
                f"{r['limit']:.3f}",
                f"{r['proposal_gap']:.4f}",
                *([_gap(importance) if importance else ""] if estimated else []),
                f"**{r['gap']:.4f}** ± {r['gap_2se']:.4f}" if r["gap"] is not None else "—",
                *([f"{lost:,} of {r['quadrature']['rows']:,}" if importance else ""] * estimated),
                "—" if r["gap"] is None else f"{r['test_log_prob_error']:.0e}",
                f"{r['steps']:,} steps, {r['seconds']:.0f} s",
                r["device"],
            ]
        )
    header = [
        "task",
        "points",
        "best possible (nats)",
        "gap of the proposal",
        *["gap of the AEM, importance sampling"] * estimated,
        "gap of the AEM" + ", quadrature" * estimated,
        *["rows without a density"] * estimated,
        "numerical error of log p",
        "training",
        "device",
    ]
    return markdown(header, rows)


def _gap(record: dict[str, Any]) -> str:
    return f"{record['gap']:.4f} ± {record['gap_2se']:.4f}"


def seeds_table() -> str:
    """The smallest, median and largest gap of twenty seeds of each task."""
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


def start_table() -> str:
    """Early validation scores on the diamond from two initial mixtures."""
    r = result("experiments/diamond-start")
    if r is None:
        return ""
    steps = [entry["step"] for entry in r["runs"][0]["history"]]
    rows = [
        [
            "side by side" if run["config"]["model"]["spread_components"] else "the authors'",
            *(f"{entry['validation_log_prob']:,.2f}" for entry in run["history"]),
            f"{run['history'][-1]['validation_proposal_log_prob']:.2f}",
        ]
        for run in r["runs"]
    ]
    header = ["components start", *(f"after {step} steps" for step in steps), "its proposal then"]
    return markdown(header, rows)


TABLES = {
    "diamond_start": start_table,
    "plane_best": lambda: plane_table("best"),
    "plane_fast": lambda: plane_table("fast"),
    "plane_paper": lambda: plane_table("paper"),
    "seeds": seeds_table,
}
