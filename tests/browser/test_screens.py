"""The page as it looks: both themes at three widths, with a recorded pair and with a run of 2,000 tokens.

Screenshots go to the folder named by SAFE_LENS_SCREENSHOTS, else to pytest's own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from safe_core import trace
from tests.browser.driving import drawn
from tests.browser.made_traces import long_run

pytestmark = pytest.mark.browser

LOOKS = [(theme, width) for theme in ("light", "dark") for width in (360, 900, 1600)]
TABS = ("Charts", "Tables", "Tokenizers", "Report")

CONTRAST = """(selectors) => {
  const channel = (v) => (v /= 255, v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const read = (css) => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (let at = node; at !== null; at = at.parentElement) {
      const colour = read(getComputedStyle(at).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return [255, 255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll(selectors)) {
    if (node.getClientRects().length === 0 || node.textContent.trim() === '') continue;
    const [a, b] = [light(read(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${node.className} '${node.textContent.slice(0, 30)}' ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
"""Texts whose contrast with what is behind them is below 4.5 to 1."""

READ = ".sl-head p, .sl-note, .sl-status-line span, .sl-tour-start, .stat span, .pane-models, .kind-name, .count, .place"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go."""
    named = os.environ.get("SAFE_LENS_SCREENSHOTS")
    made = Path(named) if named else tmp_path_factory.mktemp("screens")
    made.mkdir(parents=True, exist_ok=True)
    return made


def looked_at(page: Any, address: str, theme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}?__theme={theme}")
    drawn(page)
    page.wait_for_timeout(400)


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth"))


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_the_page_with_a_recorded_pair(page: Any, address: str, folder: Path, theme: str, width: int) -> None:
    looked_at(page, address, theme, width)
    page.screenshot(path=str(folder / f"pair-{theme}-{width}.png"), full_page=True)
    assert fits(page)
    assert page.get_attribute("#lens .safe-lens", "data-theme") == theme
    assert page.evaluate(CONTRAST, READ) == []
    assert page.locator("#lens .legend .kind:visible").count() >= 6
    page.locator("#lens .inspector .sentence").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#lens .inspector .figure').scrollIntoView({block: 'center'})")
    page.wait_for_timeout(200)
    legend = page.evaluate("document.querySelector('#lens .legend').getBoundingClientRect().toJSON()")
    assert 0 <= legend["top"] < 200, "the legend went out of sight"
    over = "({x, y}) => document.elementFromPoint(x, y)?.closest('.legend') !== null"
    assert page.evaluate(over, {"x": legend["left"] + 12, "y": legend["top"] + legend["height"] / 2})
    page.screenshot(path=str(folder / f"inspector-{theme}-{width}.png"))


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_every_tab_fits(page: Any, address: str, folder: Path, theme: str, width: int) -> None:
    looked_at(page, address, theme, width)
    for name in TABS:
        tab = page.get_by_role("tab", name=name)
        if not tab.is_visible():  # on a narrow page the last ones stand in a menu
            page.locator("#tabs .overflow-menu > button").click()
            page.locator("#tabs .overflow-dropdown button", has_text=name).click()
        else:
            tab.click()
        if name == "Charts":
            page.wait_for_selector("#charts .js-plotly-plot .point", timeout=30_000)
        if name == "Tables":
            page.wait_for_function("() => document.querySelector('#table-statistics')?.innerText.includes('SAFE')")
        page.wait_for_timeout(250)
        assert fits(page), name
        page.screenshot(path=str(folder / f"{name.lower()}-{theme}-{width}.png"), full_page=True)


@pytest.mark.parametrize(("theme", "width"), [("light", 360), ("dark", 1600)])
def test_a_run_of_2000_tokens(page: Any, address: str, folder: Path, tmp_path: Path, theme: str, width: int) -> None:
    looked_at(page, address, theme, width)
    for name, method in (("left", "unite"), ("right", "safe")):
        trace.write(tmp_path / f"{name}.jsonl", long_run(2000, method, models=4))  # type: ignore[arg-type]
    files = [str(tmp_path / f"{name}.jsonl") for name in ("left", "right")]
    page.set_input_files("#upload input[type=file], input[type=file]", files)
    page.wait_for_function("() => document.querySelectorAll('#lens .strip .tok').length === 4000", timeout=60_000)
    drawn(page)
    assert fits(page)
    page.wait_for_function("() => document.querySelector('.sl-status-line').innerText.startsWith('Opened')")
    page.evaluate("document.querySelector('#lens').scrollIntoView()")
    page.wait_for_timeout(500)
    page.screenshot(path=str(folder / f"long-{theme}-{width}.png"))
    page.locator("#lens .pane[data-run=right] .strip .tok").first.click()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('#lens .pane[data-run=right] .tok.selected')?.token === 1")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_keyboard_reaches_everything_and_shows_where_it_is(page: Any, address: str, theme: str) -> None:
    looked_at(page, address, theme, 1400)
    shown = """() => {
      const at = document.activeElement;
      const style = getComputedStyle(at);
      const around = [at, at.parentElement, at.closest('label, .wrap, .block')].filter(Boolean).map((n) => getComputedStyle(n));
      const seen = around.some((s) => (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1) || s.boxShadow !== 'none');
      return { tag: at.tagName, name: at.id || at.className.toString().slice(0, 40) || at.textContent.slice(0, 20), seen,
               text: (at.innerText || at.getAttribute('aria-label') || '').slice(0, 40), border: style.borderColor };
    }"""
    page.evaluate("document.activeElement.blur()")
    reached, unseen = [], []
    for _ in range(60):
        page.keyboard.press("Tab")
        now = page.evaluate(shown)
        if now["tag"] == "BODY":
            break
        reached.append(now["text"])
        if not now["seen"]:
            unseen.append(f"{now['tag']} {now['name']} '{now['text']}'")
    words = " ".join(reached)
    for wanted in ("Take the tour", "Run", "Step window", "UniTE broke here"):
        assert wanted in words
    assert unseen == []
