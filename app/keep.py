"""What open pages show, on disk: a page that is loaded again, or whose server was gone for a while, finds its runs there.

Every page has a name that only it knows. Its folder holds ``page.json`` and a trace per run, written as the run goes on; folders
that nobody wrote to for half a day are removed.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from app.desks import PANES, Shown
from app.orders import Order
from safe_core import events as ev
from safe_core import trace
from safe_core.events import Event
from safe_core.types import TraceError

log = logging.getLogger("safe_lens")

NAME: Final = re.compile(r"[0-9a-f]{32}")
LASTS_S: Final = 12 * 3600.0
MOST: Final = 64


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a page; its events are in a file of their own."""

    key: str
    title: str
    order: Order | None = None


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What was on a page: a pair of the gallery by its name, or runs; and what stood in the form when they were begun."""

    name: str | None = None
    runs: list[Run] = []
    form: dict[str, Any] | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a page finds again. ``cut``: a run was going on when the page, or the server, went away."""

    kept: Kept
    shown: list[Shown]
    cut: bool


class Keep:
    """The folders of all pages. What cannot be written or read is logged and left out: a full disk must not stop a run."""

    def __init__(self, root: Path | None) -> None:
        """``root`` holds the folders; without one, nothing is kept."""
        self._root = root
        self._lock = threading.Lock()
        self._tidied = 0.0

    def begin(self, page: str, kept: Kept, shown: Sequence[Shown] = ()) -> None:
        """A page shows something else now: ``shown`` are the runs that have events already."""
        folder = self._folder(page)
        if folder is None:
            return
        try:
            self._tidy()
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, mode=0o700)
            for run in shown:
                (folder / f"{run.key}.jsonl").write_bytes(trace.dumps(list(run.events)))
            (folder / "page.json").write_bytes(msgspec.json.encode(kept))
        except OSError as problem:
            log.warning("a page could not be kept: %s", problem)

    def add(self, page: str, run: str, events: Sequence[Event]) -> None:
        """A run goes on."""
        folder = self._folder(page)
        if folder is None or not folder.is_dir():
            return
        try:
            with open(folder / f"{run}.jsonl", "ab") as file:
                file.write(trace.dumps(events))
        except OSError as problem:
            log.warning("a run could not be kept: %s", problem)

    def find(self, page: str) -> Found | None:
        """What a page showed last; runs that were cut off get their last event."""
        folder = self._folder(page)
        try:
            if folder is None:
                return None
            kept = msgspec.json.decode((folder / "page.json").read_bytes(), type=Kept)
            read = [(run, _read(folder / f"{run.key}.jsonl")) for run in kept.runs if run.key in PANES]
        except (OSError, msgspec.DecodeError, TraceError):
            return None
        shown = [Shown(run.key, run.title, ended(events), run.order) for run, events in read if events]
        cut = any(events and not isinstance(events[-1], ev.End) for _, events in read)
        return Found(kept=kept, shown=shown, cut=cut) if shown or kept.name is not None else None

    def _folder(self, page: str) -> Path | None:
        return self._root / page if self._root is not None and NAME.fullmatch(page) else None

    def _tidy(self) -> None:
        """Remove what is old, or too much, a few times an hour."""
        now = time.time()
        with self._lock:
            if self._root is None or now - self._tidied < 600.0 or not self._root.is_dir():
                return
            self._tidied = now
        by_age = sorted(((f.stat().st_mtime, f) for f in self._root.iterdir() if NAME.fullmatch(f.name)), reverse=True)
        for place, (changed, folder) in enumerate(by_age):
            if place >= MOST or now - changed > LASTS_S:
                shutil.rmtree(folder, ignore_errors=True)


def ended(events: Sequence[Event]) -> list[Event]:
    """The events with a last one, where the run was cut off before it."""
    if not events or isinstance(events[-1], ev.End):
        return list(events)
    fold = trace.Statistics()
    for event in events:
        fold.add(event)
    text = trace.Trace(tuple(events)).data.decode(errors="replace")
    return [*events, fold.close("cancelled", text, 0.0, None, {})]


def _read(path: Path) -> list[Event]:
    """The whole lines of a trace file; a line that was being written when the server ended is left out."""
    if not path.is_file():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    return list(trace.loads(whole).events) if whole else []


def private_folder() -> Path | None:
    """A folder of this user's alone below the system's one for temporary files; none where there can be none."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    root = Path(tempfile.gettempdir()) / f"safe-lens-pages-{user}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        return root if not root.is_symlink() and root.stat().st_uid in (user, 0) else None
    except OSError as problem:
        log.warning("pages cannot be kept: %s", problem)
        return None
