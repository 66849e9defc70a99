"""The whole page in a real browser: recorded runs without a model; live runs (marked ``real``) on the built-in pair."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safe_core import trace
from safe_core.events import Commit
from tests.browser.driving import ROOT, drawn, status, tokens
from tests.browser.made_traces import Maker, long_run

pytestmark = pytest.mark.browser

OPENS_WITHIN = 5.0
HOSTILE = (
    "<img src=x onerror=window.ran=1><script>window.ran=1</script> ${window.ran=1} {{x}} `\\` <|im_end|> 👩‍👩‍👧 שלום\r\n\tend"
)


@pytest.fixture
def opened(page: Any, address: str) -> Any:
    """The page with its first pair on it."""
    page.goto(address)
    drawn(page, 2)
    return page


def _place(page: Any) -> str:
    return str(page.inner_text("#lens .place"))


def _upload(page: Any, *files: Path) -> None:
    page.set_input_files("#upload input[type=file], input[type=file]", [str(file) for file in files])


# -- recorded runs ------------------------------------------------------------------------------------------------------------


def test_the_server_is_there_at_once() -> None:
    code = (
        "import time; t = time.perf_counter(); from app import layout; d = layout.Page().blocks(); print(time.perf_counter() - t)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) < 2 * OPENS_WITHIN  # a busy test machine; alone it is about half the limit


def test_the_first_screen_tells_the_story(opened: Any) -> None:
    assert opened.locator(".pane-title").all_inner_texts() == ["UniTE", "SAFE"]
    pairs = json.loads((ROOT / "assets/traces/gallery.json").read_text("utf-8"))
    assert f"trace={pairs[0]['name']}" in opened.url
    assert _place(opened).startswith(f"token #{pairs[0]['where']['token']} of")
    assert opened.locator("#gallery button").count() == len(pairs)
    assert opened.evaluate("performance.getEntriesByType('resource').every(e => e.name.startsWith(location.origin))")


def test_every_pair_opens_at_its_place(opened: Any) -> None:
    for pair in json.loads((ROOT / "assets/traces/gallery.json").read_text("utf-8")):
        opened.click(f"#pair-{pair['name']}")
        opened.wait_for_function("name => location.hash.includes('trace=' + name)", arg=pair["name"])
        where = f"token #{pair['where']['token']} of"
        opened.wait_for_function("w => document.querySelector('#lens .place').textContent.startsWith(w)", arg=where)
        opened.wait_for_selector(f"#lens .pane.active[data-run={pair['where']['run']}]")


def test_keys_step_through_a_recorded_run(opened: Any) -> None:
    opened.locator("#lens .pane[data-run=left] .strip .tok").first.click()
    opened.keyboard.press("Home")
    assert _place(opened).startswith("token #0 of")
    opened.keyboard.press("ArrowRight")
    assert _place(opened).startswith("token #1 of")
    opened.keyboard.press("End")
    total = opened.locator("#lens .pane.active .strip .tok").count()
    assert _place(opened).startswith(f"token #{total - 1} of {total}")


def test_keys_typed_into_the_prompt_stay_there(opened: Any) -> None:
    before = _place(opened)
    opened.fill("#prompt textarea", "")
    opened.type("#prompt textarea", "oor?")
    assert opened.input_value("#prompt textarea") == "oor?"
    assert _place(opened) == before


def test_an_example_fills_the_prompt(opened: Any) -> None:
    opened.locator("#examples button.gallery-item, #examples .gallery-item").nth(1).click()
    opened.wait_for_function("() => document.querySelector('#prompt textarea').value.includes('Bulgaria')")


def test_a_link_to_what_is_not_there_says_so(page: Any, address: str) -> None:
    page.goto(f"{address}#trace=%3Cb%3Enope%3C%2Fb%3E&token=3")
    assert "<b>nope</b>" in status(page, "error")
    drawn(page, 2)


def test_a_broken_upload_is_a_sentence_and_keeps_the_page(opened: Any, tmp_path: Path) -> None:
    before = opened.locator("#lens .strip .tok").count()
    broken = tmp_path / "<b>cut<b>.jsonl"
    broken.write_bytes(trace.dumps(long_run(9))[:-30])
    _upload(opened, broken)
    assert "Line" in status(opened, "error")
    assert opened.locator("#lens .strip .tok").count() == before


def test_an_uploaded_trace_is_shown_literally_and_given_back(opened: Any, tmp_path: Path) -> None:
    pieces: list[Any] = [HOSTILE.encode(), b"<b>bold</b>", "漢".encode()[:2], "漢".encode()[2:], "eos"]
    data = trace.dumps(Maker(pieces, prompt=HOSTILE, models=("<i>one</i>", "${window.ran=1}")).events())
    (tmp_path / "hostile.jsonl").write_bytes(data)
    _upload(opened, tmp_path / "hostile.jsonl")
    opened.wait_for_selector("#lens .panes.single")
    drawn(opened, 1)
    assert opened.evaluate("document.querySelector('#lens .prompt').textContent") == HOSTILE
    for tab in ("Charts", "Tables", "Traces"):
        opened.get_by_role("tab", name=tab).click()
        opened.wait_for_timeout(1500)
    assert opened.evaluate("window.ran") is None
    with opened.expect_download() as download:
        opened.click("#download-left")
    assert Path(download.value.path()).read_bytes() == data
    opened.problems[:] = [p for p in opened.problems if "blob" not in p]


def test_the_offline_page_shows_what_the_screen_shows(opened: Any, tmp_path: Path) -> None:
    shown = opened.locator("#lens .pane[data-run=left] .strip").inner_text()
    opened.wait_for_selector("#download-html:not([disabled])")
    with opened.expect_download() as download:
        opened.click("#download-html")
    target = tmp_path / "offline.html"
    target.write_bytes(Path(download.value.path()).read_bytes())
    assert target.stat().st_size < 2_000_000
    opened.goto(target.as_uri())
    opened.wait_for_function("() => document.querySelectorAll('.pane-status:not(:empty)').length === 2")
    assert opened.locator(".pane[data-run=left] .strip").inner_text() == shown


def test_a_point_of_a_chart_leads_to_its_token(opened: Any) -> None:
    opened.get_by_role("tab", name="Charts").click()
    opened.wait_for_selector("#charts .js-plotly-plot .point", timeout=30_000)
    assert opened.locator("#charts .js-plotly-plot").count() == 6
    opened.wait_for_timeout(500)
    run, token = opened.evaluate(
        "() => { const chart = document.querySelector('#charts .js-plotly-plot'); const place = chart.data[0].customdata[3];"
        " chart.emit('plotly_click', {points: [{customdata: place}]}); return place; }"
    )
    opened.wait_for_function("w => document.querySelector('#lens .place').textContent.startsWith(w)", arg=f"token #{token} of")
    assert opened.locator(f".pane.active[data-run={run}]").count() == 1


def test_tables_hold_the_runs(opened: Any) -> None:
    opened.get_by_role("tab", name="Tables").click()
    opened.wait_for_function("() => document.querySelector('#table-statistics')?.innerText.includes('broken prefix')")
    text = opened.inner_text("#table-statistics")
    assert "UniTE" in text
    assert "SAFE" in text
    assert "asked on a broken prefix" in text
    opened.wait_for_selector("#csv-tokens-left:not([disabled])")
    with opened.expect_download() as download:
        opened.click("#csv-tokens-left")
    assert Path(download.value.path()).read_text("utf-8").startswith("token,window,text")


def test_bad_fields_are_a_sentence_where_the_person_looks(opened: Any) -> None:
    opened.fill("#prompt textarea", "   ")
    opened.click("#run")
    assert "prompt is empty" in status(opened, "error")
    assert opened.locator("#lens .pane").count() == 2


# -- live runs ----------------------------------------------------------------------------------------------------------------

LOADING = 240_000


def _begin(page: Any, prompt: str, button: str = "#run") -> None:
    page.fill("#prompt textarea", prompt)
    page.click(button)
    page.wait_for_function(
        "p => document.querySelector('#lens .prompt')?.textContent === p",
        arg=prompt,
        timeout=LOADING,
    )


@pytest.mark.real
def test_a_live_run_steps_stops_and_is_given_back_as_it_ran(opened: Any) -> None:
    _begin(opened, "Name two rivers of Asia.", "#step")
    assert status(opened, "paused", LOADING).startswith("Paused after a window")
    assert opened.inner_text("#pause") == "Resume"
    opened.wait_for_timeout(700)
    count = tokens(opened)
    opened.wait_for_timeout(1500)
    assert tokens(opened) == count > 0
    opened.click("#to-fusion")
    opened.wait_for_function("n => document.querySelectorAll('#lens .strip .tok').length > n", arg=count, timeout=60_000)
    status(opened, "paused", 60_000)
    opened.click("#pause")
    status(opened, "busy", 30_000)
    opened.click("#stop")
    assert status(opened, "done", 30_000).startswith(("Stopped", "Done"))
    drawn(opened, 2)
    opened.wait_for_selector("#download-right:not([disabled])")
    opened.wait_for_timeout(1500)
    with opened.expect_download() as download:
        opened.click("#download-right")
    ran = trace.loads(Path(download.value.path()).read_bytes())
    assert ran.start.prompt == "Name two rivers of Asia."
    assert ran.end is not None
    count = sum(len(event.tokens) for event in ran.events if isinstance(event, Commit))
    assert count == opened.locator("#lens .pane[data-run=right] .strip .tok").count()


@pytest.mark.real
def test_a_hostile_prompt_runs_and_stands_there_literally(opened: Any) -> None:
    prompt = HOSTILE.replace("\r\n", "\n")  # a text field gives line ends as newlines
    opened.click("#advanced button")
    opened.fill("#max-tokens input", "6")
    _begin(opened, prompt)
    status(opened, "done", LOADING)
    drawn(opened, 2)
    assert opened.evaluate("window.ran") is None


@pytest.mark.real
def test_a_fork_goes_on_in_the_other_pane(opened: Any) -> None:
    opened.locator("#lens .pane[data-run=left] .strip .tok").first.click()
    opened.keyboard.press("r")
    parent = opened.locator("#lens .pane[data-run=left] .strip").inner_text()
    opened.locator("#lens .candidates .fork").nth(1).click()
    opened.wait_for_function(
        "() => document.querySelector('#lens .pane[data-run=right] .pane-title')?.textContent.includes('forked')", timeout=LOADING
    )
    opened.click("#stop", timeout=60_000)
    status(opened, "done", 60_000)
    drawn(opened, 2)
    assert opened.locator("#lens .pane[data-run=left] .strip").inner_text() == parent


@pytest.mark.real
def test_tokenizers_stand_on_one_ruler(opened: Any) -> None:
    opened.get_by_role("tab", name="Tokenizers").click()
    opened.fill("#bench-text textarea", f"Incorrect {HOSTILE}")
    opened.click("#bench-run")
    opened.wait_for_selector("#bench .sl-bench-row", timeout=LOADING)
    assert opened.locator("#bench .sl-bench-row").count() == 2
    assert opened.evaluate("window.ran") is None
    assert "inner boundaries are shared" in opened.inner_text("#bench .sl-bench-summary")
