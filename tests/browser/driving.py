"""Pages as processes, and what tests wait for on them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
STARTS_WITHIN = 60.0
CUT_OFF = (
    *("AbortError", "Unexpected error Connection errored out", "Failed to load resource"),
    *("TypeError: Failed to fetch", "TypeError: network error"),
)
"""What the browser and the toolkit report of requests that a reload or a stopped server cut off."""


class Served:
    """A page in a process of its own, on a port that stays the same when it is started again."""

    def __init__(self, command: Sequence[str]) -> None:
        """``command`` are the arguments of Python; ``PORT`` in them stands for the port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.command = [sys.executable, *(str(self.port) if part == "PORT" else part for part in command)]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Served:
        """Start, and wait until it answers."""
        self.process = subprocess.Popen(self.command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(self.url, timeout=2).close()
                return self
            except (urllib.error.URLError, OSError):
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.1)
        raise AssertionError("the server did not answer")

    def kill(self) -> None:
        """End at once, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)


def drawn(page: Any, panes: int = 2) -> None:
    """Wait until finished runs are in the lens."""
    page.wait_for_function(
        "n => { const all = [...document.querySelectorAll('#lens .pane-status')];"
        " return all.length === n && all.every(e => e.textContent !== '' && e.textContent !== 'running')"
        "  && document.querySelector('#lens .strip[data-busy]') === null; }",
        arg=panes,
        timeout=30_000,
    )


def status(page: Any, kind: str, timeout: float = 30_000) -> str:
    """What the status line says, once it is of this kind."""
    deadline = time.monotonic() + timeout / 1e3
    while page.get_attribute(".sl-status-line", "data-kind") != kind:
        said = page.inner_text(".sl-status-line span")
        assert time.monotonic() < deadline, f"the status is no {kind} but: {said}"
        page.wait_for_timeout(100)
    return str(page.inner_text(".sl-status-line span"))


def tokens(page: Any, run: str = "") -> int:
    """Tokens on the page, of one run or of all."""
    pane = f"[data-run={run}]" if run else ""
    return int(page.locator(f"#lens .pane{pane} .strip .tok").count())


def forgive(page: Any, *more: str) -> None:
    """Strike from the problems what was to be expected of a connection that was cut on purpose."""
    page.problems[:] = [problem for problem in page.problems if not problem.startswith((*CUT_OFF, *more))]
