"""The page in a browser: every control, the keyboard, narrow screens, and nothing from outside."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aem.report import BuiltReport

from .conftest import HOSTILE


class Watched:
    """A page, and whatever went wrong on it."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.trouble: list[str] = []
        own = path.as_uri()
        self.page.on("console", lambda message: self.trouble.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self._dialog(dialog))
        self.page.on("request", lambda request: self._request(request.url, own))
        self.page.goto(own)
        self.page.wait_for_selector("#making table")
        self.page.wait_for_selector("#calibration svg")

    def _dialog(self, dialog: Any) -> None:
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, url: str, own: str) -> None:
        if url.partition("#")[0] != own and not url.startswith("data:"):
            self.trouble.append(f"request: {url}")

    def overflow(self) -> int:
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(script))


@pytest.fixture
def wide(browser: Any, page_file: Path) -> Iterator[Watched]:
    watched = Watched(browser, page_file, viewport={"width": 1200, "height": 900})
    yield watched
    watched.context.close()
    assert watched.trouble == []


def test_every_control_can_be_clicked(wide: Watched, made: BuiltReport) -> None:
    page = wide.page
    page.set_default_timeout(5000)
    for box in page.locator("input[type=checkbox]").all():
        before = box.is_checked()
        box.click()
        assert box.is_checked() != before
        box.click()
    page.locator("#marginals input").first.uncheck()
    assert not page.locator("#marginals .data-bar").first.is_visible()
    assert page.locator("#marginals .samples-line").first.is_visible()
    for radio in page.locator("input[type=radio]").all():
        radio.check()
    assert page.locator("#pairs canvas").count() == 1  # points together are one picture
    for choice in page.locator("select").all():
        for option in choice.locator("option").all():
            choice.select_option(value=option.get_attribute("value"))
    page.get_by_role("button", name="Next pair").click()
    page.get_by_role("button", name="Previous pair").click()
    for explain in page.locator("#surprises tbody button").all():
        explain.click()
    # Pictures are drawn when the browser has found room for them.
    pictures = 3 * len(made.record["surprises"]["rows"])
    page.locator("#surprises tr.detail svg").nth(pictures - 1).wait_for()
    assert page.locator("#surprises tr.detail svg").count() == pictures
    page.locator("#surprises tbody button").first.click()
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert tab.get_attribute("aria-selected") == "true"
        assert page.get_by_role("tabpanel").count() == 1
    for _ in range(3):
        page.locator("#theme").click()
    for link in page.locator("nav a").all():
        link.click()
    for target in page.locator("nav a").evaluate_all("all => all.map(a => a.hash)"):
        assert page.locator(target).count() == 1


def test_pictures_change_with_what_is_chosen(wide: Watched) -> None:
    canvas = wide.page.locator("#pairs canvas").first
    picture = "canvas => canvas.toDataURL()"
    first = canvas.evaluate(picture)
    wide.page.locator("#pairs select").first.select_option("2")
    second = canvas.evaluate(picture)
    assert first != second
    wide.page.locator("#theme").click()
    wide.page.locator("#theme").click()  # dark
    assert canvas.evaluate(picture) != second


def test_the_table_sorts_by_mouse_and_keyboard(wide: Watched) -> None:
    page = wide.page
    numbers = "all => all.map(e => Number(e.textContent.replace('row ', '').replace(',', '')))"
    heading = page.locator("#surprises th button").first
    heading.click()
    rows = page.locator("#surprises tbody th").evaluate_all(numbers)
    assert rows == sorted(rows)
    heading.press("Enter")
    assert page.locator("#surprises tbody th").evaluate_all(numbers) == sorted(rows, reverse=True)
    assert page.locator("#surprises th").first.get_attribute("aria-sort") == "descending"
    page.locator("#surprises tbody button").first.press("Space")
    assert page.locator("#surprises tr.detail").count() == 1


def test_charts_speak_to_pointer_and_keyboard(wide: Watched) -> None:
    page = wide.page
    coordinates = page.locator("#marginals .chart").first
    coordinates.scroll_into_view_if_needed()
    page.wait_for_timeout(100)  # scrolling hides the tip
    coordinates.hover()
    assert "data:" in page.locator("#tip").inner_text()
    coordinates.focus()
    coordinates.press("Home")
    first = page.locator("#tip").inner_text()
    coordinates.press("ArrowRight")
    assert page.locator("#tip").inner_text() != first
    assert coordinates.get_attribute("aria-valuenow") == "1"
    coordinates.press("Escape")
    assert page.locator("#tip").is_hidden()
    canvas = page.locator("#pairs canvas").first
    canvas.focus()
    page.wait_for_timeout(100)
    canvas.press("ArrowUp")
    assert "samples:" in page.locator("#tip").inner_text()


def test_the_keyboard_reaches_everything_and_shows_where_it_is(wide: Watched) -> None:
    page = wide.page
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        where = page.evaluate(
            "(() => { const e = document.activeElement; const s = e.closest('section, nav');"
            " const o = getComputedStyle(e).outlineStyle;"
            " return e === document.body ? null : [s ? s.id || 'nav' : 'skip', o]; })()"
        )
        if where is None:
            break
        reached.add(where[0])
        assert where[1] != "none", where
    assert {"nav", "surprises", "marginals", "pairs", "calibration", "making"} <= reached
    page.get_by_role("tab").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab").nth(1).get_attribute("aria-selected") == "true"


def test_names_are_shown_as_they_are(wide: Watched) -> None:
    shown = wide.page.locator("#marginals h3").all_inner_texts()
    assert shown == list(HOSTILE)
    assert "a<b>.aem and rows & <i>columns</i>.csv" in wide.page.locator("h1").inner_text()
    assert wide.page.locator("img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_scroll_one_way(browser: Any, page_file: Path, scheme: str) -> None:
    watched = Watched(
        browser, page_file, viewport={"width": 360, "height": 700}, color_scheme=scheme
    )
    watched.page.locator("#surprises tbody button").first.click()
    for tab in watched.page.get_by_role("tab").all():
        tab.click()
        assert watched.overflow() == 0
    watched.page.wait_for_timeout(100)
    assert watched.overflow() == 0
    watched.page.emulate_media(media="print")
    assert watched.page.locator("[role=tabpanel]").last.is_visible()
    watched.context.close()
    assert watched.trouble == []


def test_the_overview_needs_no_script(browser: Any, page_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert "mean log density" in page.locator("#overview").inner_text()
    context.close()
