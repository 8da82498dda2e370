"""Run the examples of the documentation, and write or check the outputs shown below them.

The blocks of a page run in order, in one namespace and one empty folder: ```python blocks as they
are, and lines of ```sh blocks that begin with `aem` as commands. A ```text block after such a block
has its output. A block after `<!-- not run -->` does not run.
"""

import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("start.md", "tutorials", "howto")
LEFT_ALONE = ("howto/paper.md",)  # hours of computing, no examples
PIECE = re.compile(
    r"(?P<skip><!-- not run -->\n+)?"
    r"```(?P<kind>python|sh|text)\n(?P<body>.*?)```",
    re.DOTALL,
)
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
# Other versions of NumPy and torch round differently, and training amplifies the differences.
RELATIVE, ABSOLUTE = 0.05, 0.06
SECONDS = re.compile(r"\d+\.\d s\b")


@dataclass
class Example:
    """The output that a page shows, and the output that its code printed."""

    start: int
    end: int
    shown: str
    printed: str


def pages() -> list[Path]:
    """Return every page with examples."""
    docs = ROOT / "docs"
    found = [
        p for f in FOLDERS for p in sorted((docs / f).rglob("*.md") if "." not in f else [docs / f])
    ]
    return [p for p in found if str(p.relative_to(docs)) not in LEFT_ALONE]


def run_page(text: str) -> list[Example]:
    """Run the code of a page and return its outputs beside those shown."""
    namespace: dict[str, Any] = {"__name__": "__example__"}
    examples: list[Example] = []
    printed = ""
    with tempfile.TemporaryDirectory() as folder, _inside(Path(folder)):
        for piece in PIECE.finditer(text):
            if piece["kind"] == "text":
                examples.append(Example(*piece.span("body"), piece["body"], printed))
            elif piece["skip"] is None:
                with _captured() as output:
                    if piece["kind"] == "python":
                        exec(compile(piece["body"], "example", "exec"), namespace)
                    else:
                        for line in piece["body"].replace("\\\n", " ").splitlines():
                            _command(line)
                printed = output.getvalue()
    return examples


def _command(line: str) -> None:
    words = shlex.split(line, comments=True)
    if not words or words[0] != "aem" or "|" in words:
        return
    from aem.cli import main

    before, sys.argv = sys.argv, words
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"`{line}` failed") from stop
    finally:
        sys.argv = before


def agree(shown: str, printed: str) -> bool:
    """Return whether two outputs have the same words, and numbers within the tolerances."""

    def normal(text: str) -> str:
        return "\n".join(
            " ".join(line.split()) for line in SECONDS.sub("…", text).strip().splitlines()
        )

    one, two = normal(shown), normal(printed)
    if NUMBER.sub("#", one) != NUMBER.sub("#", two):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(two), strict=True)
    return all(
        abs(a - b) <= ABSOLUTE + RELATIVE * abs(a)
        for a, b in ((float(x.replace(",", "")), float(y.replace(",", ""))) for x, y in pairs)
    )


class _Output(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def getvalue(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


@contextmanager
def _captured() -> Iterator[_Output]:
    before, output = sys.stdout, _Output()
    sys.stdout = output
    try:
        yield output
    finally:
        sys.stdout = before


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main() -> None:
    """Write the outputs into the pages named, or into all."""
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or pages()
    for path in chosen:
        text = path.read_text(encoding="utf-8")
        for example in reversed(run_page(text)):
            text = text[: example.start] + example.printed.rstrip() + "\n" + text[example.end :]
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
