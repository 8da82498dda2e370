"""Write the tables of README and docs from results/*.json, so that no number is ever typed.

A page holds pairs of markers, <!-- results:NAME --> and <!-- /results -->; what stands between them
belongs to this script. With --check nothing is written and a stale page is an error.
"""

import re
import sys
from collections.abc import Callable

import render_exactness
import render_practice
import render_speed
import render_tables
import render_vae
from pages import ROOT, markdown, result

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


TABLES: dict[str, Callable[[], str]] = {
    **render_exactness.TABLES,
    **render_practice.TABLES,
    **render_speed.TABLES,
    **render_tables.TABLES,
    **render_vae.TABLES,
    "plane_best": lambda: plane_table("best"),
    "plane_fast": lambda: plane_table("fast"),
    "plane_paper": lambda: plane_table("paper"),
    "seeds": seeds_table,
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
