"""The guided tour in a real browser: every stop on both themes and three widths, its keys, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import gallery, tour
from safe_core import trace
from tests.browser.driving import drawn
from tests.browser.made_traces import long_run

pytestmark = pytest.mark.browser

STOPS = len(tour.STOPS)


def at_stop(page: Any, number: int) -> None:
    """The card shows a stop and its rings are drawn and at rest."""
    page.wait_for_function("n => document.querySelector('.sl-tour-count')?.textContent.startsWith(`${n} of`)", arg=number)
    page.wait_for_selector(".sl-tour-ring", timeout=15_000)
    place = "() => [...document.querySelectorAll('.sl-tour-ring')].map((r) => r.style.cssText).join()"
    before = ""
    while (now := page.evaluate(place)) != before:
        before = now
        page.wait_for_timeout(350)


def rings(page: Any) -> list[dict[str, float]]:
    return list(
        page.evaluate("() => [...document.querySelectorAll('.sl-tour-ring')].map((r) => r.getBoundingClientRect().toJSON())")
    )


@pytest.mark.parametrize(("width", "height", "theme"), [(1600, 900, "light"), (900, 1000, "dark"), (360, 740, "dark")])
def test_every_stop_is_seen_beside_its_card(page: Any, address: str, width: int, height: int, theme: str) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{address}?__theme={theme}")
    drawn(page)
    page.click(".sl-tour-start")
    for number, stop in enumerate(tour.stops(gallery.pairs()), 1):
        at_stop(page, number)
        assert page.inner_text(".sl-tour-title") == stop["title"]
        card = page.evaluate("() => document.querySelector('.sl-tour').getBoundingClientRect().toJSON()")
        assert card["left"] >= 0
        assert card["right"] <= width
        assert card["height"] <= height / 2
        first = rings(page)[0]
        assert first["top"] >= 0
        assert first["bottom"] <= card["top"] or first["height"] > card["top"] - 120, stop["title"]
        assert page.is_visible(".sl-tour-next")
        token = stop["link"].split("token=")[1]
        assert page.inner_text("#lens .place").startswith(f"token #{token} of")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.click(".sl-tour-next")
    page.wait_for_selector(".sl-tour", state="detached")


def test_keys_step_and_leave_and_the_lens_keeps_its_own(page: Any, address: str) -> None:
    page.goto(address)
    drawn(page)
    page.click(".sl-tour-start")
    at_stop(page, 1)
    page.keyboard.press("N")
    at_stop(page, 1)
    for number in (2, 3, 4):
        page.keyboard.press("n")
        at_stop(page, number)
    page.keyboard.press("N")
    at_stop(page, 3)
    page.keyboard.press("ArrowRight")  # the card has the keyboard, the arrow is the lens's all the same
    page.wait_for_function("() => document.querySelector('#lens .place').textContent.startsWith('token #13 of')")
    page.wait_for_selector(".sl-tour-ring", state="detached")  # what is spoken about is no longer there
    page.fill("#prompt textarea", "")
    page.type("#prompt textarea", "nN")
    assert page.input_value("#prompt textarea") == "nN"
    page.locator(".sl-tour-title").focus()
    page.keyboard.press("?")
    page.wait_for_selector("#lens dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#lens dialog[open]", state="detached")
    page.keyboard.press("Escape")
    page.wait_for_selector(".sl-tour", state="detached")
    assert page.evaluate("document.activeElement.className") == "sl-tour-start"


def test_pressing_fast_ends_at_the_right_stop(page: Any, address: str) -> None:
    page.goto(address)
    drawn(page)
    page.click(".sl-tour-start")
    page.wait_for_selector(".sl-tour")
    for _ in range(STOPS - 1):
        page.keyboard.press("n")
    for _ in range(2):
        page.keyboard.press("N")
    at_stop(page, STOPS - 2)
    page.keyboard.press("n")
    page.keyboard.press("Escape")
    page.wait_for_selector(".sl-tour", state="detached")
    page.wait_for_function("() => document.querySelector('.sl-status-line').innerText.startsWith('The tour is over')")
    page.wait_for_timeout(1000)
    assert "Schadenfreude" in page.inner_text("#lens .prompt >> nth=0")


def test_it_works_in_presenter_mode(page: Any, address: str) -> None:
    page.goto(address)
    drawn(page)
    page.click(".sl-tour-start")
    at_stop(page, 1)
    small = page.evaluate("parseFloat(getComputedStyle(document.querySelector('.sl-tour')).fontSize)")
    page.keyboard.press("p")
    page.wait_for_selector(".sl-tour.large")
    assert page.evaluate("parseFloat(getComputedStyle(document.querySelector('.sl-tour')).fontSize)") > 1.2 * small
    for number in range(2, STOPS + 1):
        page.keyboard.press("n")
        at_stop(page, number)
        on_top = "() => { const b = document.querySelector('.sl-tour-next').getBoundingClientRect();" \
            " return document.elementFromPoint(b.x + 5, b.y + 5).className; }"  # fmt: skip
        assert page.evaluate(on_top) == "sl-tour-next"
        first, card = rings(page)[0], page.evaluate("document.querySelector('.sl-tour').getBoundingClientRect().top")
        assert first["top"] < card
    page.keyboard.press("Escape")
    page.wait_for_selector(".safe-lens.presenter", state="detached")
    assert page.is_visible(".sl-tour")
    page.keyboard.press("Escape")
    page.wait_for_selector(".sl-tour", state="detached")


def test_the_reader_comes_back_to_where_they_were(page: Any, address: str, tmp_path: Path) -> None:
    page.goto(address)
    drawn(page)
    (tmp_path / "mine.jsonl").write_bytes(trace.dumps(long_run(200)))
    page.set_input_files("#upload input[type=file], input[type=file]", str(tmp_path / "mine.jsonl"))
    page.wait_for_selector("#lens .panes.single")
    drawn(page, 1)
    page.locator("#lens .strip .tok").nth(123).click()
    page.wait_for_function("() => location.hash.includes('token=123')")
    page.evaluate("window.scrollTo(0, 150)")
    page.click(".sl-tour-start")
    at_stop(page, 1)
    page.keyboard.press("n")
    at_stop(page, 2)
    page.reload()  # even now
    page.wait_for_selector("#lens .panes.single")
    page.problems[:] = []
    page.wait_for_function("() => document.querySelector('#lens .place').textContent.startsWith('token #123 of 200')")
    page.click(".sl-tour-start")
    at_stop(page, 1)
    page.keyboard.press("n")
    at_stop(page, 2)
    page.click(".sl-tour-end")
    page.wait_for_selector("#lens .panes.single")
    page.wait_for_function("() => document.querySelector('#lens .place').textContent.startsWith('token #123 of 200')")
    assert page.locator("#lens .pane").count() == 1


def test_opening_something_else_ends_it_without_going_back(page: Any, address: str) -> None:
    page.goto(address)
    drawn(page)
    page.click(".sl-tour-start")
    at_stop(page, 1)
    page.click("#pair-code")
    page.wait_for_selector(".sl-tour", state="detached")
    page.wait_for_function("() => document.querySelector('#lens .prompt')?.textContent.includes('Python')")
    page.wait_for_timeout(500)
    assert "trace=code" in page.url
