"""Errors have one style, which CONTRIBUTING.md describes."""

import ast
from collections.abc import Iterator
from pathlib import Path

import aem

ROOT = Path(aem.__file__).parent
ERRORS = {"AemError", "TableError", "RemovedSetting", "DivergentNormalizer", "Interrupted"}
NAMES = ("AEM-KDE",)  # start with a capital letter everywhere


def texts() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each error, with {} for each value."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ERRORS:
                match node.args:
                    case [ast.Constant(value=str(text))]:
                        yield f"{path}:{node.lineno}", text
                    case [ast.JoinedStr(values=parts)]:
                        pieces = (p.value if isinstance(p, ast.Constant) else "{}" for p in parts)
                        yield f"{path}:{node.lineno}", "".join(map(str, pieces))


def test_errors_are_written_in_one_style() -> None:
    found = list(texts())
    assert len(found) > 200
    for place, text in found:
        assert text[0] == text[0].lower() or text.startswith(NAMES), f"{place}: {text}"
        assert text == text.strip(), f"{place}: {text}"
        assert not text.endswith((".", "!")), f"{place}: {text}"
        assert ". " not in text, f"{place} is more than one sentence: {text}"
        assert '"' not in text, f"{place}: {text}"
