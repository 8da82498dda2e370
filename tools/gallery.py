"""Combine pictures of the plane tasks and of the digits into the first picture of the README."""

from pathlib import Path

from aem.paper.gallery import ROWS, row_of, stack_rows

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Write results/gallery.png, if all of its parts exist."""
    results = ROOT / "results"
    missing = [task for task in ROWS if not (results / task / "paper.npz").is_file()]
    if missing:
        print(f"results/gallery.png stays as it is: no run with the paper's settings of {missing}")
        return
    rows = [row_of(results, task) for task in ROWS]
    stack_rows([*rows, (results / "vae" / "best.png").read_bytes()], results / "gallery.png")


if __name__ == "__main__":
    main()
