"""What the tabs below the lens show of the runs on a page: files to download, charts, tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import gradio as gr

from app.desks import PANES, Shown
from app.export import html_of
from safe_core import trace
from safe_core.events import Event

TABLES: Final = ("statistics", *(f"{what}-{side}" for what in ("windows", "points", "tokens") for side in PANES))
"""The tables of a page, by the names of their files."""
FILES: Final = 3
"""Files to download beside the tables: a trace per pane, and both in one page."""


def told(tab: str, folder: Path, shown: Sequence[Shown]) -> list[Any]:
    """The outputs of all tabs: new ones for the open tab, nothing for the others, which wait until they are opened.

    ``folder`` takes the files.
    """
    from app.charts import CHARTS

    events = {s.key: list(s.events) for s in shown}
    files = _files(folder, shown, events) if tab == "traces" else [gr.skip()] * FILES
    charts = _drawn(shown, events) if tab == "charts" else [gr.skip()] * len(CHARTS)
    tabled = _tabled(folder, shown, events) if tab == "tables" else [gr.skip()] * (1 + 2 + 2 + len(TABLES))
    return [*files, *charts, *tabled]


def _files(folder: Path, shown: Sequence[Shown], events: dict[str, list[Event]]) -> list[Any]:
    """The traces as they are on the page, and both in one offline page."""
    made: list[Any] = []
    for key in PANES:
        if key in events:
            (folder / f"{key}.jsonl").write_bytes(trace.dumps(events[key]))
        made.append(_download(folder / f"{key}.jsonl" if key in events else None))
    if shown:
        page = html_of([(_named(s), events[s.key]) for s in shown])
        (folder / "safe-lens.html").write_text(page, encoding="utf-8")
    return [*made, _download(folder / "safe-lens.html" if shown else None)]


def _drawn(shown: Sequence[Shown], events: dict[str, list[Event]]) -> list[Any]:
    from app.charts import CHARTS, Charted

    runs = [Charted(s.key, _named(s), events[s.key]) for s in shown]
    return [draw(runs) for draw in CHARTS] if runs else [None] * len(CHARTS)


def _tabled(folder: Path, shown: Sequence[Shown], events: dict[str, list[Event]]) -> list[Any]:
    from app import tables

    frames = {"statistics": tables.statistics([(_named(s), events[s.key]) for s in shown])} if shown else {}
    for what, fold in (("windows", tables.windows), ("points", tables.points), ("tokens", tables.tokens)):
        frames |= {f"{what}-{key}": fold(events[key]) for key in PANES if key in events}
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    parts = [*(f"windows-{key}" for key in PANES), *(f"points-{key}" for key in PANES)]
    csv = [_download(folder / f"{name}.csv" if name in frames else None) for name in TABLES]
    return [*(tables.rounded(frames[name]) if name in frames else None for name in ("statistics", *parts)), *csv]


def _named(shown: Shown) -> str:
    return shown.title or {"left": "Left run", "right": "Right run"}[shown.key]


def _download(path: Path | None) -> Any:
    return gr.update(value=None if path is None else str(path), interactive=path is not None)
