"""The token view: a page component fed with trace events and drawn by ``assets/lens/``.

The same bundle of scripts draws a live run, a replay and an exported file. Data only ever travels as data: the template is
constant, nodes are made in JavaScript with ``textContent``.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import gradio as gr
import msgspec

from safe_core.events import Event, to_dict

ASSETS: Final = Path(__file__).resolve().parent.parent / "assets" / "lens"
MODULES: Final = (
    *("text", "hash", "keys", "feed", "sentences", "trace-model", "dom", "ruler"),
    *("figure", "inspector", "strip", "minimap", "pane", "bar", "lens"),
)
"""Modules in the order in which each needs only those before it."""

PUBLIC: Final = ("mount", "attach", "parseHash", "formatHash")
"""What the bundle offers as ``window.SafeLens``."""

Item = dict[str, Any]

_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./[\w-]+\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?function|class|const)", re.MULTILINE)
_ON_LOAD: Final = """
const events = ["select", "fork"];
const tell = (name, detail) => events.includes(name) && trigger(name, detail);
window.SafeLens.attach(element, props, tell, watch, (ids) => server.held_packs(ids));
"""


@cache
def bundle() -> str:
    """All modules and the style sheet as one script that defines ``window.SafeLens``.

    The modules are plain ES modules (so that they can be tested alone) written by two rules: imports stand on one line and
    do not rename, and no two modules give the same name to something at their top level. Joining them is then only a
    matter of leaving out ``import`` lines and the word ``export``.
    """
    parts = [_EXPORT.sub("", _IMPORT.sub("", (ASSETS / f"{name}.js").read_text("utf-8"))) for name in MODULES]
    style = json.dumps((ASSETS / "lens.css").read_text("utf-8")).replace("<", "\\u003c")
    return "\n".join(
        [
            "(function () {",
            '"use strict";',
            "if (window.SafeLens !== undefined) return;",
            *parts,
            'const sheet = document.createElement("style");',
            f"sheet.textContent = {style};",
            "document.head.append(sheet);",
            f"window.SafeLens = {{ {', '.join(PUBLIC)} }};",
            "})();",
        ]
    )


def pack(events: Iterable[Event]) -> str:
    """Whole events as base64 of gzip of a JSON list: what a page moves and keeps is then about a tenth of the JSON."""
    return base64.b64encode(gzip.compress(msgspec.json.encode(list(events)), compresslevel=6, mtime=0)).decode("ascii")


BEST: Final = 6
"""Candidates of a fusion that travel at once: as many as the inspector shows before it is asked for all."""

LIVE_CHARS: Final = 32_768
"""Longest piece of a run that stands in an item itself; a longer one is fetched."""

LIVE_ITEMS: Final = 24
"""Newest items that hold their events themselves: some updates' worth, for pages that are late."""


def live(events: Iterable[Event]) -> str:
    """What a page draws at once of events, as a JSON list.

    Left out are what the view never shows (ids of the prompt's tokens, counts of tokens fed) and what it fetches when asked:
    candidates behind the best and the chosen, whose number stands in ``of``. A ``sharpened`` that equals its ``mean`` is
    left out too. :func:`pack` keeps all of it.
    """
    return msgspec.json.encode([_slim(to_dict(event)) for event in events]).decode()


def _slim(event: Item) -> Item:
    event.pop("fed", None)
    event.pop("forward_ms", None)
    if event["event"] == "start":
        for model in event["models"]:
            model["prompt_ids"] = []
    if event["event"] == "ensemble":
        rows = event["candidates"]
        chosen = (event["chosen_hex"], event.get("chosen_eos", False))
        kept = [row for at, row in enumerate(rows) if at < BEST or (row["hex"], row.get("eos", False)) == chosen]
        if len(kept) < len(rows):
            event["of"] = len(rows)
        event["candidates"] = kept
        for row in kept:
            if row["sharpened"] == row["mean"]:
                del row["sharpened"]
    return event


class Shelf:
    """Packed events that pages come and fetch: under a name nobody can guess, the oldest let go first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[str, str] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, pack: str) -> str:
        """Keeps a pack and names it."""
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._held[name] = pack
            self._bytes += len(pack)
            while self._bytes > self._limit_bytes and len(self._held) > 1:
                self._bytes -= len(self._held.popitem(last=False)[1])
        return name

    def get(self, names: Iterable[object]) -> list[str | None]:
        """The packs of these names, ``None`` for one that is gone."""
        with self._lock:
            return [self._held.get(name) if isinstance(name, str) else None for name in names]


_shelf: Final = Shelf(limit_bytes=512 << 20)


def held_packs(names: list[str]) -> list[str | None]:
    """What a page asks for by name (called from the browser)."""
    return _shelf.get(names if isinstance(names, list) else [])


class Lens(gr.HTML):  # type: ignore[misc]  # gradio is not typed
    """Two runs side by side, or one, with legend, steps and window inspector.

    ``value`` is an **append-only** list of items: a view from :meth:`view`, then :meth:`items` as events come. A handler
    yields the growing list; only its new tail travels. A list that begins with another view starts over. Items are small:
    the whole events stay here until the page fetches them, because the page toolkit copies and compares a component's
    whole value at every update, and sends it once more when a handler ends. On their way out the newest items get what the
    page draws of their events (see :func:`live`), so that a live run needs no fetch.

    Listeners: ``select`` (the reader chose; ``run``, ``window``, ``token``) and ``fork`` (the reader wants to go on from
    another candidate; ``run``, ``window``, ``index``, ``hex``, ``eos``), both read from ``gr.EventData``. ``can_fork`` shows
    the buttons for the latter; ``link`` keeps the place in the page's address.
    """

    def __init__(self, value: list[Item] | None = None, *, can_fork: bool = False, link: bool = True, **kwargs: Any) -> None:
        super().__init__(
            value=value if value is not None else [],
            html_template='<div class="safe-lens-host"></div>',
            css_template="",
            js_on_load=_ON_LOAD,
            head=f"<script>{bundle()}</script>",
            apply_default_css=False,
            server_functions=[held_packs],
            can_fork=can_fork,
            link=link,
            **kwargs,
        )

    @staticmethod
    def view(panes: Sequence[tuple[str, str]], trace: str | None = None) -> Item:
        """First item of a list: its panes as (run, title), left first, and the name under which links find it."""
        return {
            "reset": True,
            "id": secrets.token_hex(6),
            "panes": [{"run": run, "title": title} for run, title in panes],
            "trace": trace,
        }

    @staticmethod
    def items(run: str, events: Sequence[Event]) -> list[Item]:
        """Events of a run as items to append, one for all of them; none for none. ``ref`` is where they lie whole, ``live``
        what is drawn of them at once."""
        if not events:
            return []
        text = live(events)
        item: Item = {"run": run, "ref": _shelf.put(pack(events))}
        return [item | {"live": text} if len(text) <= LIVE_CHARS else item]

    def preprocess(self, payload: list[Item] | None) -> list[Item]:
        """The list as it is."""
        return payload or []

    def postprocess(self, value: list[Item] | None) -> list[Item]:
        """The list with events in its newest items alone: the page has drawn those of older ones, or fetches them."""
        items = value or []
        newest = len(items) - LIVE_ITEMS
        return [{k: v for k, v in item.items() if k != "live"} if at < newest else item for at, item in enumerate(items)]

    def api_info(self) -> dict[str, Any]:
        """A list of objects."""
        return {"type": "array", "items": {"type": "object", "additionalProperties": True}}

    def example_payload(self) -> list[Item]:
        """An empty view."""
        return []

    def example_value(self) -> list[Item]:
        """An empty view."""
        return []


# The toolkit writes an interface file beside every component class it meets; type checkers would read that instead of this.
Path(__file__).with_suffix(".pyi").unlink(missing_ok=True)
