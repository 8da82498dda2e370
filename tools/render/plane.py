"""The tables of the tasks in the plane, from results/<task>/*.json and results/seeds/fast.json."""

from tools.render.pages import markdown, result

PLANE = ("spirals", "checkerboard", "diamond", "image", "einstein")


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


def start_table() -> str:
    """What the diamond's energy does from two starts of its mixture."""
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
