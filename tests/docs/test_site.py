"""The site's pages are all reachable, and it builds without a warning."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    docs = ROOT / "docs"
    assert listed == {str(page.relative_to(docs)) for page in docs.rglob("*.md")}


def test_the_site_builds_and_fetches_nothing(tmp_path: Path) -> None:
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason="the site needs pip install 'aem[docs]'")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    built = subprocess.run(
        [*command, str(site)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?://[^"]+)"', text)
        assert not [f for f in fetched if "canonical" not in f], page
        pictures = re.findall(r'<img[^>]*src="(?!data:)([^"]+)"', text)
        assert all((page.parent / picture).is_file() for picture in pictures), page
    assert "AEMDensity" in (site / "reference" / "estimators.html").read_text(encoding="utf-8")
    assert "--explain" in (site / "reference" / "commands.html").read_text(encoding="utf-8")
