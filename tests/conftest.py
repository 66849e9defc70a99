"""A headless Chromium for tests of the page. The network is refused: whatever a page needs must be in it or on this host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes with several threads each would only wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")

ALLOWED = ("file:", "data:", "blob:", "about:", "http://127.0.0.1", "http://localhost", "ws://127.0.0.1", "ws://localhost")


def _executable() -> str | None:
    """A Chromium of the system, where there is one; else playwright's own."""
    named = os.environ.get("CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=_executable(), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A fresh page that fails its test on an error in the console, an uncaught exception, a dialog, or a request elsewhere.

    ``page.problems`` is the list of what went wrong so far; a test that provokes something on purpose may clear it.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, accept_downloads=True)
    problems: list[str] = []

    def refuse(route: Any) -> None:
        if route.request.url.startswith(ALLOWED):
            route.continue_()
            return
        problems.append(f"request to {route.request.url}")
        route.abort()

    def closed(dialog: Any) -> None:
        problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    context.route("**/*", refuse)
    tab = context.new_page()
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("dialog", closed)
    tab.problems = problems
    yield tab
    context.close()
    assert not problems, "the page reported: " + "; ".join(problems)
