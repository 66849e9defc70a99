"""Traces as one HTML file that needs nothing else: same renderer, same numbers, no network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.desks import PANES
from app.lens import Item, Lens, bundle, pack
from safe_core.events import Event
from safe_core.types import InputError

_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""The file may use what is in it and nothing else: no request leaves the reader's machine."""

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
html {{ background: #fff; }} html[data-theme="dark"] {{ background: #11161c; }}
body {{ margin: 0 auto; max-width: 1600px; }}
</style>
</head>
<body>
<main id="lens"></main>
<noscript>This file draws itself with JavaScript, which is switched off here.</noscript>
<script type="application/json" id="data">{data}</script>
<script>{bundle}</script>
<script>
const lens = SafeLens.mount(document.getElementById("lens"), {{ theme: "system", link: true }});
lens.push(JSON.parse(document.getElementById("data").textContent));
</script>
</body>
</html>
"""


def items_of(traces: Sequence[tuple[str, Sequence[Event]]], name: str | None = None) -> list[Item]:
    """One or two titled traces as the items of a view, the first on the left. Raises InputError for another number."""
    if not 1 <= len(traces) <= 2:
        raise InputError(f"One or two runs fit into a file side by side, not {len(traces)}.")
    panes = [(run, title) for run, (title, _) in zip(PANES, traces, strict=False)]
    items = [Lens.view(panes, name)]
    for run, (_, events) in zip(PANES, traces, strict=False):
        items.append({"run": run, "gz": pack(events)})
    return items


def html_of(traces: Sequence[tuple[str, Sequence[Event]]]) -> str:
    """The page as text. Nothing a model or a person wrote stands in it but inside packed data and the escaped title."""
    items = items_of(traces)
    items[0].pop("id")  # the same traces give the same file
    title = " and ".join(title or "run" for title, _ in traces)
    data = json.dumps(items, ensure_ascii=True).replace("<", "\\u003c")
    return _PAGE.format(policy=_POLICY, title=html.escape(title), data=data, bundle=bundle())


def export_html(traces: Sequence[tuple[str, Sequence[Event]]], path: str | Path) -> Path:
    """Writes one or two titled traces to ``path`` as a self-contained page and returns it.

    Raises InputError when the file cannot be written.
    """
    target = Path(path)
    try:
        target.write_text(html_of(traces), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"The page could not be written to {target}: {reason}. Choose another place.") from error
    return target
