"""Stack the rows of the plane tasks and of the digits into the picture that opens the README."""

from pathlib import Path

from aem.paper.gallery import ROWS, stack_rows

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Write results/gallery.png."""
    results = ROOT / "results"
    stack_rows([results / task / "best.png" for task in (*ROWS, "vae")], results / "gallery.png")


if __name__ == "__main__":
    main()
