"""What a long live run costs on the wire, from the real server to a real browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from app.lens import BEST
from tests.browser.driving import Served

pytestmark = pytest.mark.browser

TOKENS = 2_000
PACE = 0.012
"""Seconds a window takes: two runs of 2,000 tokens are then about half a minute, with some 300 updates of the page."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The page of ``app.py``, with made runs for live ones."""
    served = Served(["-m", "tests.browser.made_server", str(PACE), str(TOKENS), "--port", "PORT"])
    try:
        yield served.start().url
    finally:
        served.kill()


class Wire:
    """Bytes a tab received since the start, headers included, as they came: compressed."""

    def __init__(self, page: Any) -> None:
        self.names: dict[str, str] = {}
        self.heads: Counter[str] = Counter()
        self.pieces: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.flushes: Counter[str] = Counter()
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.requestWillBeSent", lambda e: self.names.update({e["requestId"]: e["request"]["url"]}))
        session.on("Network.responseReceived", lambda e: self.heads.update({e["requestId"]: e["response"]["encodedDataLength"]}))
        session.on("Network.dataReceived", self._piece)
        session.on("Network.loadingFinished", lambda e: self.ended.update({e["requestId"]: e["encodedDataLength"]}))

    def _piece(self, event: dict[str, Any]) -> None:
        self.pieces[event["requestId"]] += event["encodedDataLength"]
        self.flushes[event["requestId"]] += 1

    def by_address(self) -> Counter[str]:
        """Bytes per address, without its query."""
        total: Counter[str] = Counter()
        for request, name in self.names.items():
            total[name.partition("?")[0]] += max(self.ended[request], self.heads[request] + self.pieces[request])
        return total


def test_two_thousand_tokens_of_both_panes_are_less_than_a_megabyte(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_function("() => document.querySelectorAll('#lens .pane-status:not(:empty)').length === 2")
    page.wait_for_selector("#download-html:not([disabled])")
    wire = Wire(page)
    page.fill("#prompt textarea", "Tell me something long.")
    page.evaluate(
        """() => {
          window.drawn = new Set();
          const note = () => drawn.add(document.querySelectorAll('#lens .pane[data-run=right] .strip .tok').length);
          new MutationObserver(note).observe(document.querySelector('#lens'), { childList: true, subtree: true });
        }"""
    )
    page.click("#run")
    page.wait_for_selector(".sl-status-line[data-kind='done']", timeout=300_000)
    page.wait_for_function("n => document.querySelectorAll('#lens .strip .tok').length === n", arg=2 * TOKENS)
    page.wait_for_function(
        "() => [...document.querySelectorAll('#lens .pane-status')].every(e => e.textContent.startsWith('ended'))"
    )
    page.wait_for_timeout(1_000)
    sent = wire.by_address()
    print(sent.most_common(4), sum(sent.values()))
    assert sum(sent.values()) < 1_000_000, sent.most_common(4)
    stream = max(wire.flushes.values())
    assert stream > 100, "the stream arrives piece by piece although it is compressed"
    assert page.evaluate("drawn.size") > 100, "the page draws while the run goes on"


def test_what_was_left_out_is_fetched_when_it_is_asked_for(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_function("() => document.querySelectorAll('#lens .pane-status:not(:empty)').length === 2")
    page.fill("#prompt textarea", "Tell me something long.")
    page.click("#run")
    page.wait_for_function("() => document.querySelector('#lens .pane[data-run=left] .pane-status').textContent === 'running'")
    page.wait_for_function("() => document.querySelectorAll('#lens .pane[data-run=left] .strip .tok').length > 60")
    page.click("#stop")
    page.wait_for_selector(".sl-status-line[data-kind='done']", timeout=60_000)
    page.locator("#lens .pane[data-run=left] .strip .tok").nth(20).click()
    more = page.locator("#lens .fused .link")
    for _ in range(20):  # to a fusion with more candidates than are shown
        if more.count() > 0:
            break
        page.keyboard.press("ArrowRight")
    before = page.locator("#lens .candidates .fork").count()
    assert before == BEST
    total = int(more.inner_text().split()[2])
    assert total > before
    more.click()
    page.wait_for_function("n => document.querySelectorAll('#lens .candidates .fork').length === n", arg=total)
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => !document.querySelector('#lens .fused .link')?.textContent.startsWith('show all')")
