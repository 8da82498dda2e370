"""The page holds what it needs, and nothing from the data can become markup."""

import json
import re
from html.parser import HTMLParser

from aem.report import BuiltReport, render
from aem.report.page import embedded


class Elements(HTMLParser):
    """Counts elements and keeps what scripts hold."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self._inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts.append(data)


def parse(page: str) -> Elements:
    found = Elements()
    found.feed(page)
    return found


def test_names_never_become_markup(made: BuiltReport) -> None:
    found = parse(render(made.record))
    tags = [tag for tag, _ in found.seen]
    assert tags.count("script") == 2 and "img" not in tags and "i" not in tags
    assert not any(name.startswith("on") for _, attributes in found.seen for name in attributes)


def test_the_data_comes_back_unharmed(made: BuiltReport) -> None:
    found = parse(render(made.record))
    assert json.loads(found.scripts[0]) == json.loads(json.dumps(made.record))
    assert not re.search("[<>&]", embedded(made.record))


def test_nothing_is_fetched(made: BuiltReport) -> None:
    page = render(made.record)
    for _, attributes in parse(page).seen:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert "url(" not in page and "@import" not in page
    assert not re.search(r"(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\()", page)


def test_the_same_report_gives_the_same_page(made: BuiltReport) -> None:
    assert render(made.record) == render(made.record)
    assert len(render(made.record)) < 2**20
