"""What open pages hold: the runs on each, and the job under way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from app.jobs import Job
from app.orders import Order
from safe_core.events import Event
from safe_core.types import InputError

PANES: Final = ("left", "right")
"""The keys of a page's runs, in the order in which they stand."""


@dataclass(slots=True)
class Shown:
    """One run on a page: its pane, title and events (still growing while its job goes on), and the order it came from."""

    key: str
    title: str
    events: Sequence[Event]
    order: Order | None = None


@dataclass(slots=True)
class Desk:
    """What one open page shows and runs."""

    shown: list[Shown] = field(default_factory=list)
    job: Job | None = None
    name: str | None = None  # of the gallery entry on the page
    page: str = ""
    """What the page calls itself, so that its runs are found again when it is loaded anew; empty for a page that did not say."""
    form: dict[str, object] | None = None
    """What stood in the form when the runs were begun."""
    before: tuple[list[Shown], str | None] | None = None
    """What was on the page, and its name, before the tour; ``None`` while there is no tour."""
    _folder: TemporaryDirectory[str] | None = None

    @property
    def folder(self) -> Path:
        """A place for files to download; it goes when the desk goes."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="safe-lens-", ignore_cleanup_errors=True)
        return Path(self._folder.name)

    @property
    def going(self) -> Job | None:
        """The job under way, if there is one."""
        return self.job if self.job is not None and not self.job.over else None

    def end(self, timeout: float = 60.0) -> None:
        """Stop what is under way and wait until the page shows no more of it."""
        job = self.job
        if job is None:
            return
        job.control.stop()
        if job.ident is not None:
            job.join(timeout)
        job.left.wait(timeout)
        self.job = None

    def run(self, key: str) -> Shown:
        """The run in a pane. Raises InputError where there is none."""
        for shown in self.shown:
            if shown.key == key and shown.events:
                return shown
        raise InputError("That run is no longer on the server. Open its trace again, or run it anew.")


class Desks:
    """The desks of all open pages, the longest unused let go first."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._held: OrderedDict[str, Desk] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, page: str) -> Desk:
        """The desk of a page, made at its first use."""
        dropped: list[Desk] = []
        with self._lock:
            desk = self._held.setdefault(page, Desk())
            self._held.move_to_end(page)
            while len(self._held) > self._most:
                dropped.append(self._held.popitem(last=False)[1])
        for old in dropped:
            _stop(old)
        return desk

    def claim(self, page: str, mine: Desk) -> Desk | None:
        """A page was loaded again and has the desk ``mine`` now. The one it had, if it is still there, is given back."""
        with self._lock:
            left = next((desk for desk in self._held.values() if page and desk.page == page and desk is not mine), None)
            if left is not None:
                left.page = ""
            mine.page = page
        return left

    def close(self, page: str) -> None:
        """The page is gone: stop what it ran and forget it."""
        with self._lock:
            desk = self._held.pop(page, None)
        if desk is not None:
            _stop(desk)


def _stop(desk: Desk) -> None:
    desk.page = ""  # what a run still makes while it ends is nobody's: the page did not show it
    if desk.job is not None:
        desk.job.control.stop()
