"""What interrupts a person: reloads, second tabs, a server that goes away, links to nowhere, hostile words. The real page and the
real engine in a real browser, with toy models behind them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safe_core import trace
from tests.browser.driving import Served, drawn, forgive, status, tokens
from tests.browser.made_traces import Maker

pytestmark = pytest.mark.browser

SLOW_MS = 40
"""What an event of a toy takes. A window has four or five of them."""
HOSTILE = "<img src=x onerror=window.ran=1><script>window.ran=1</script> ${window.ran=1} {{x}} `\\` <|im_end|> 👩‍👩‍👧 שלום\n\tend"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page with slow toys; some tests start it anew."""
    server = Served(["-m", "tests.browser.toy_app", "PORT", str(tmp_path_factory.mktemp("pages")), str(SLOW_MS)])
    try:
        yield server.start()
    finally:
        server.kill()


def begin(page: Any, served: Served, prompt: str, most: int = 400) -> None:
    """Open the page and run both sides until some tokens are there."""
    page.goto(served.url)
    drawn(page)
    run(page, prompt, most)


def run(page: Any, prompt: str, most: int = 400) -> None:
    if not page.is_visible("#max-tokens input"):
        page.click("#advanced button")
        page.wait_for_timeout(400)  # fields get their values as they come into sight
    page.fill("#max-tokens input", str(most))
    page.fill("#prompt textarea", prompt)
    page.click("#run")
    page.wait_for_function("p => document.querySelector('#lens .prompt')?.textContent === p", arg=prompt, timeout=30_000)
    some(page, 12)


def some(page: Any, count: int) -> None:
    page.wait_for_function("n => document.querySelectorAll('#lens .strip .tok').length >= n", arg=count, timeout=60_000)


def text(page: Any, run: str) -> str:
    return str(page.locator(f"#lens .pane[data-run={run}] .strip").inner_text())


def squeezed(shown: str) -> str:
    """Without line breaks, which depend on the width."""
    return re.sub(r"\s", "", shown)


# -- reloads ------------------------------------------------------------------------------------------------------------------


def test_a_reload_in_the_middle_brings_back_what_was_there(page: Any, served: Served) -> None:
    begin(page, served, "A long story.")
    before = {side: squeezed(text(page, side)) for side in ("left", "right")}
    page.reload()
    drawn(page)
    forgive(page)
    for side, shown in before.items():
        assert squeezed(text(page, side)).startswith(shown.removesuffix("⏹end")[:-6])
    assert "loaded again while a run was going on" in status(page, "done")
    assert page.input_value("#prompt textarea") == "A long story."
    page.wait_for_selector("#download-left:not([disabled])")
    with page.expect_download() as download:
        page.click("#download-left")
    ran = trace.loads(Path(download.value.path()).read_bytes())
    assert ran.start.prompt == "A long story."
    assert sum(len(e.tokens) for e in ran.events if type(e).__name__ == "Commit") == tokens(page, "left")
    run(page, "And a short one.", 8)  # the models are free
    assert status(page, "done").startswith("Done")
    page.reload()
    drawn(page)
    forgive(page)
    assert "before it was loaded again" in status(page, "done")
    assert page.inner_text("#lens .prompt") == "And a short one."


def test_a_reload_keeps_the_place_in_a_recorded_pair(page: Any, served: Served) -> None:
    page.goto(f"{served.url}#trace=code&run=right&window=3&token=13")
    drawn(page)
    page.locator("#lens .pane[data-run=right] .strip .tok").nth(20).click()
    page.wait_for_function("() => location.hash.includes('token=20')")
    page.reload()
    drawn(page)
    forgive(page)
    page.wait_for_function("() => document.querySelector('#lens .place').textContent.startsWith('token #20 of')")
    assert "trace=code" in page.url


# -- tabs ---------------------------------------------------------------------------------------------------------------------


def test_two_tabs_work_side_by_side(page: Any, served: Served) -> None:
    begin(page, served, "In the first tab.")
    second = page.context.new_page()
    second.goto(served.url)
    drawn(second)
    assert second.locator(".pane-title").all_inner_texts() == ["UniTE", "SAFE"]
    second.click("#pair-code")
    second.wait_for_function("() => location.hash.includes('trace=code')")
    count = tokens(page)
    some(page, count + 10)  # opening something there stops nothing here
    second.fill("#prompt textarea", "In the second tab.")
    second.click("#run")
    waits = "() => document.querySelector('.sl-status-line').innerText.startsWith(\"Waiting for another page's run\")"
    second.wait_for_function(waits)
    page.click("#stop")
    assert status(page, "done").startswith("Stopped")
    second.wait_for_function(
        "() => document.querySelector('#lens .prompt')?.textContent === 'In the second tab.'", timeout=30_000
    )
    some(second, 12)
    assert page.inner_text("#lens .prompt") == "In the first tab."
    page.close()
    count = tokens(second)
    some(second, count + 10)
    second.click("#stop")
    assert status(second, "done").startswith("Stopped")


def test_a_copy_of_a_tab_takes_nothing_from_it(page: Any, served: Served) -> None:
    begin(page, served, "The original.")
    with page.expect_popup() as popup:
        page.evaluate("() => { window.open(location.pathname, '_blank'); }")  # a popup starts with a copy of the tab's storage
    copy = popup.value
    drawn(copy)
    assert "trace=" in copy.url
    count = tokens(page)
    some(page, count + 10)
    assert page.get_attribute(".sl-status-line", "data-kind") == "busy"
    copy.close()
    page.click("#stop")
    status(page, "done")


# -- stopping -----------------------------------------------------------------------------------------------------------------


def test_stop_stops_within_one_window(page: Any, served: Served) -> None:
    begin(page, served, "Stop me.")
    page.click("#stop")
    windows = page.evaluate("() => document.querySelector('#lens .place').textContent")
    before = tokens(page)
    assert status(page, "done", 5_000).startswith("Stopped")
    drawn(page)
    assert tokens(page) - before <= 2 * (5 + 2), windows  # what one window of each run can hold, and what was on its way
    count = tokens(page)
    page.wait_for_timeout(1500)
    assert tokens(page) == count
    assert page.locator("#lens .pane-status").all_inner_texts() == ["stopped", "stopped"]


def test_nothing_moves_while_a_run_streams(page: Any, served: Served) -> None:
    begin(page, served, "Keep still.")
    page.wait_for_timeout(500)
    page.evaluate(
        "() => { window.moved = []; new PerformanceObserver((list) => { for (const e of list.getEntries()) {"
        " if (!e.hadRecentInput) window.moved.push([e.value, ...e.sources.map((s) => s.node?.className ?? '')]); } })"
        ".observe({ type: 'layout-shift' }); }"
    )
    heights = "() => ['.pane', '.top', '.sl-status-line'].map((s) => document.querySelector(s).offsetHeight)"
    before = page.evaluate(heights)
    count = tokens(page)
    some(page, count + 60)
    assert page.evaluate(heights) == before
    moved = page.evaluate("window.moved")
    assert sum(shift[0] for shift in moved) < 0.1, moved
    page.click("#stop")
    status(page, "done")


# -- the server ---------------------------------------------------------------------------------------------------------------


def test_a_server_that_goes_and_comes_back_loses_nothing(page: Any, served: Served) -> None:
    begin(page, served, "Before the crash.")
    served.kill()
    assert "The server does not answer" in status(page, "error", 30_000)
    gone = {side: squeezed(text(page, side)) for side in ("left", "right")}
    assert all(gone.values())
    page.locator("#lens .pane[data-run=left] .strip .tok").nth(2).click()  # what is here can still be read
    assert page.inner_text("#lens .place").startswith("token #2 of")
    served.start()
    drawn(page)
    assert "the server was gone for a moment" in status(page, "done", 60_000)
    forgive(page)
    for side, shown in gone.items():
        assert squeezed(text(page, side)).startswith(shown[:-6])
    run(page, "After it.", 8)
    assert status(page, "done").startswith("Done")


def test_a_page_that_rested_meanwhile_still_has_its_files(page: Any, served: Served) -> None:
    begin(page, served, "Then nothing.", 16)
    status(page, "done")
    drawn(page)
    served.kill()
    time.sleep(1)
    served.start()
    page.wait_for_timeout(6000)  # the page may have noticed, and is then loaded again by itself
    drawn(page)
    page.get_by_role("tab", name="Tables").click()
    page.wait_for_function("() => document.querySelector('#table-statistics')?.innerText.includes('SAFE')", timeout=30_000)
    page.get_by_role("tab", name="Traces").click()
    page.wait_for_selector("#download-left:not([disabled])")
    with page.expect_download() as download:
        page.click("#download-left")
    assert trace.loads(Path(download.value.path()).read_bytes()).start.prompt == "Then nothing."
    forgive(page, "Unexpected error 404")  # the new server does not know the stream of the old one


# -- links --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("trace=%3Cimg%20src%3Dx%20onerror%3Dwindow.ran%3D1%3E&token=3", "<img src=x onerror=window.ran=1>"),
        ("trace=code&run=right&token=9999", "token '9999', but that run has 96 tokens"),
        ("trace=code&run=right&window=9999", "window '9999'"),
        ("trace=code&run=%24%7Bwindow.ran%3D1%7D&token=1", "run '${window.ran=1}'"),
        ("trace=code&run=right&token=%3Cscript%3E", "token '<script>'"),
    ],
)
def test_a_link_to_nowhere_says_so_and_shows_something(page: Any, served: Served, asked: str, said: str) -> None:
    page.goto(f"{served.url}#{asked}")
    assert said in status(page, "error")
    drawn(page)
    page.locator("#lens .pane[data-run=left] .strip .tok").first.click()
    assert page.inner_text("#lens .place").startswith("token #0 of")
    assert page.evaluate("window.ran") is None


def test_a_link_that_is_pasted_into_an_open_page_opens(page: Any, served: Served) -> None:
    page.goto(served.url)
    drawn(page)
    page.evaluate("() => { location.hash = '#trace=code&run=right&window=2&token=8'; }")
    page.wait_for_function("() => document.querySelector('#lens .prompt')?.textContent.includes('Python')")
    page.wait_for_function("() => document.querySelector('#lens .place').textContent.startsWith('token #8 of')")
    page.evaluate("() => { location.hash = '#trace=nothing'; }")
    assert "named 'nothing'" in status(page, "error")
    assert "Python" in page.inner_text("#lens .prompt")


# -- hostile words ------------------------------------------------------------------------------------------------------------


def test_hostile_words_in_prompt_system_prompt_and_model_names(page: Any, served: Served) -> None:
    page.goto(served.url)
    drawn(page)
    page.click("#advanced button")
    page.fill("#system textarea", HOSTILE)
    page.fill("#max-tokens input", "8")
    page.fill("#drafter input", HOSTILE.replace("\n", " "))
    page.keyboard.press("Enter")
    page.fill("#prompt textarea", HOSTILE)
    page.click("#run")
    page.wait_for_function("p => document.querySelector('#lens .prompt')?.textContent === p", arg=HOSTILE)
    status(page, "done")
    drawn(page)
    for name in ("Charts", "Tables", "Traces"):
        page.get_by_role("tab", name=name).click()
        page.wait_for_timeout(800)
    page.wait_for_selector("#download-left:not([disabled])")
    with page.expect_download() as download:
        page.click("#download-left")
    ran = trace.loads(Path(download.value.path()).read_bytes())
    assert ran.start.prompt == HOSTILE
    assert ran.start.settings["system"] == HOSTILE.strip()
    assert page.evaluate("window.ran") is None


def test_hostile_words_in_an_uploaded_file_and_its_name(page: Any, served: Served, tmp_path: Path) -> None:
    page.goto(served.url)
    drawn(page)
    name = "<img src=x onerror=window.ran=1> ${window.ran=1} {{x}} `שלום`.jsonl"
    pieces: list[Any] = [HOSTILE.encode(), b"<b>bold</b>", "漢".encode()[:2], "漢".encode()[2:], "eos"]
    models = ("<script>window.ran=1</script>", "${window.ran=1}")
    (tmp_path / name).write_bytes(trace.dumps(Maker(pieces, prompt=HOSTILE, models=models).events()))
    page.set_input_files("#upload input[type=file], input[type=file]", str(tmp_path / name))
    page.wait_for_selector("#lens .panes.single")
    drawn(page, 1)
    said = status(page, "idle")
    assert said.startswith("Opened ")
    assert "img src=x onerror=window.ran=1" in said  # the toolkit takes signs out that a file system may not hold
    assert page.locator(".sl-status-line *:not(span):not(progress)").count() == 0
    page.reload()
    drawn(page, 1)
    forgive(page)
    assert page.evaluate("document.querySelector('#lens .prompt').textContent") == HOSTILE
    assert page.evaluate("window.ran") is None
