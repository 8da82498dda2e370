"""Write the tables of README and docs from results/*.json, so that no number is typed by hand.

A page holds pairs of markers, <!-- results:NAME --> and <!-- /results -->, and this program writes
the text between them. With --check it writes nothing and fails where a page is out of date.
"""

import re
import sys
from collections.abc import Callable

from tools.render import exactness, plane, practice, speed, tables, vae
from tools.render.pages import ROOT

PAGES = (
    "README.md",
    "docs/results.md",
    "docs/speed.md",
    "docs/experiments.md",
    "docs/exactness.md",
    "docs/vae.md",
    "docs/howto/proposals.md",
)
MARKED = re.compile(r"(<!-- results:(\w+) -->\n).*?(<!-- /results -->)", re.DOTALL)


TABLES: dict[str, Callable[[], str]] = {
    **exactness.TABLES,
    **plane.TABLES,
    **practice.TABLES,
    **speed.TABLES,
    **tables.TABLES,
    **vae.TABLES,
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
