"""The page on the architecture names files that are there, each in its folder, and all folders."""

import re
from pathlib import Path

import aem

ROOT = Path(aem.__file__).parent
PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


def paragraphs() -> dict[str, str]:
    """What the page says of each folder."""
    text = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^\*\*`(\w+)/`\*\* ", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (p.partition("\n\n")[0] for p in parts[2::2]), strict=True))


def test_every_folder_is_described() -> None:
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert set(paragraphs()) == folders


def test_files_are_where_the_page_says() -> None:
    for folder, text in paragraphs().items():
        there = {path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*.py")}
        for name in re.findall(r"`([\w/]+\.py)`", text):
            assert any(path == Path(name) or path.name == name for path in there), (folder, name)
