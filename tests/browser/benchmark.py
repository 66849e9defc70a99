"""How quick and how large the token view is: ``python -m tests.browser.benchmark``.

Two made runs (UniTE beside SAFE) of 2,000 tokens and four models, opened as an exported file in headless Chromium.

* **steps, jumps, hovers**: 200 each. A key press (arrow keys), a jump (keys for the next OOV-like token, replacement, window,
  first, last, the other pane, where the runs part; the scrubber; the minimap) or a pointer that enters a chip is dispatched
  inside the page; the clock runs from there until the frame that shows the result has been painted (a task posted from that
  frame's ``requestAnimationFrame``, which runs after style, layout and paint). The wait for the frame itself, up to 16.7 ms,
  is in it. "work" is the handler with style and layout alone.
* **first paint**: from the start of the navigation to the file until the frame with the chips has been painted, and from
  handing the packed trace to an empty lens until the same.
* **memory**: JavaScript heap after a garbage collection, and the resident memory of the tab's process.
* **file**: bytes of the exported file per 1,000 tokens of the response, both runs in it.

Run it on a quiet machine: the load is printed with the numbers.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from app.export import export_html
from tests.browser.made_traces import long_run
from tests.conftest import _executable

TOKENS: Final = 2_000
MODELS: Final = 4
GOALS: Final = {"worst_ms": 50.0, "first_paint_ms": 1_000.0, "tab_mb": 300.0, "file_mb": 2.0}

TIMED: Final = """
window.frame = () => new Promise(done => requestAnimationFrame(() => {
  const after = new MessageChannel();
  after.port1.onmessage = () => done(performance.now());
  after.port2.postMessage(null);
}));
window.timed = async (count, act) => {
  const work = [], painted = [];
  for (let i = 0; i < count; i += 1) {
    await frame();
    const begun = performance.now();
    act(i);
    document.body.getBoundingClientRect();
    work.push(performance.now() - begun);
    painted.push(await frame() - begun);
  }
  return { work, painted };
};
window.press = (key, shiftKey = false) => {
  const target = document.activeElement ?? document.body;
  target.dispatchEvent(new KeyboardEvent('keydown', { key, shiftKey, bubbles: true, cancelable: true }));
};
"""

STEPS: Final = "() => timed(200, i => press(i % 3 === 2 ? 'ArrowLeft' : 'ArrowRight'))"

JUMPS: Final = """() => {
  const scrubber = document.querySelector('.scrubber');
  const seek = share => {
    scrubber.value = String(Math.floor(share * Number(scrubber.max)));
    scrubber.dispatchEvent(new Event('input', { bubbles: true }));
  };
  const map = share => {
    const place = document.querySelector('.pane.active .minimap canvas').getBoundingClientRect();
    const at = { clientX: place.left + share * place.width, clientY: place.top + 5, bubbles: true };
    document.querySelector('.pane.active .minimap').dispatchEvent(new PointerEvent('pointerdown', at));
  };
  const kinds = [
    () => press('o'), () => press('End'), () => press('r'), () => press('Home'), () => press('ArrowRight', true),
    () => press('x'), i => seek(((i * 37) % 100) / 100), () => press('d'), i => map(((i * 53) % 100) / 100), () => press('b'),
  ];
  return timed(200, i => kinds[i % kinds.length](i));
}"""

HOVERS: Final = """() => {
  const frame = document.querySelector('.pane.active .strip').getBoundingClientRect();
  const seen = [...document.querySelectorAll('.pane.active .strip .tok')].filter(chip => {
    const at = chip.getBoundingClientRect();
    return at.bottom > frame.top && at.top < frame.bottom;
  });
  return timed(200, i => seen[i % seen.length].dispatchEvent(new PointerEvent('pointerover', { bubbles: true })));
}"""

REOPEN: Final = """async () => {
  const items = JSON.parse(document.getElementById('data').textContent);
  lens.clear();
  await frame();
  const begun = performance.now();
  await lens.push(items);
  return await frame() - begun;
}"""

Numbers = dict[str, float]


def measure(folder: Path, rounds: int = 1) -> Numbers:
    """All numbers of the benchmark, by name; times are milliseconds. With several rounds, each step counts its best time."""
    runs = [(name, long_run(TOKENS, method, MODELS, seed)) for seed, (name, method) in enumerate(METHODS)]
    path = export_html(runs, folder / "benchmark.html")
    found: Numbers = {"file_mb": path.stat().st_size / 1e6 / (TOKENS / 1_000)}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=_executable(), args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": 1400, "height": 1000})
        page.add_init_script(TIMED)
        page.add_init_script(FIRST)
        page.goto(path.as_uri())
        found["first_paint_ms"] = page.evaluate("() => painted")
        page.wait_for_selector(".strip[data-busy]", state="detached")
        page.locator(".pane[data-run=right] .strip .tok").first.click()
        for name, script in (("step", STEPS), ("jump", JUMPS), ("hover", HOVERS)):
            times = [page.evaluate(script) for _ in range(rounds)]
            for kind in ("work", "painted"):
                best = [min(at) for at in zip(*(each[kind] for each in times), strict=True)]
                found |= {f"{name}_{kind}_worst_ms": max(best), f"{name}_{kind}_median_ms": statistics.median(best)}
        found |= _memory(chromium, page)
        found["reopen_ms"] = page.evaluate(REOPEN)
        chromium.close()
    return found


METHODS: Final = (("UniTE", "unite"), ("SAFE", "safe"))

FIRST: Final = """
window.painted = new Promise(done => {
  const seen = new MutationObserver(() => {
    if (document.querySelector('.tok.selected') === null) return;
    seen.disconnect();
    frame().then(done);
  });
  seen.observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ['class'] });
});
"""


def _memory(chromium: Any, page: Any) -> Numbers:
    """JavaScript heap in use, and what the largest renderer process holds resident."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
    processes = chromium.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    resident = max(_resident_mb(process["id"]) for process in processes if process["type"] == "renderer")
    return {"heap_mb": metrics["JSHeapUsedSize"] / 1e6, "tab_mb": resident}


def _resident_mb(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
    return next(float(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Measure and print, goals beside what they are for."""
    print(f"load {os.getloadavg()[0]:.2f} over {os.cpu_count()} cores; {TOKENS} tokens x {MODELS} models x {len(METHODS)} runs")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    for name, value in found.items():
        goal = next((goal for end, goal in GOALS.items() if name.endswith(end)), None)
        said = "" if goal is None else f"   goal {goal:g}: {'met' if value < goal else 'MISSED'}"
        print(f"{name:24} {value:9.2f}{said}")


if __name__ == "__main__":
    main()
