"""The page's parts: sections, and the figures that are collected while their text is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from safe_core.benchmarks.report.results import Run
from safe_core.benchmarks.report.words import escaped, plural, prose

if TYPE_CHECKING:
    import plotly.graph_objects as go

SIGNS: Final = {
    "diamond": "◆", "x": "✖", "circle": "●", "triangle-up": "▲", "square": "■",
    "diamond-open": "◇", "x-open": "✕", "circle-open": "○", "triangle-up-open": "△", "square-open": "□",
    "star": "★", "cross": "✚", "pentagon": "⬟", "bowtie": "⧓", "hourglass": "⧗",
    "solid": "─", "dash": "╌", "dot": "┈", "dashdot": "─·",
}  # fmt: skip
"""Shapes and dashes as characters of a legend."""


class Board:
    """Collects a page's figures while its text is written."""

    def __init__(self) -> None:
        self.figures: list[dict[str, Any]] = []

    def figure(self, drawn: go.Figure, title: str, sentence: str, runs: Sequence[Run] = ()) -> str:
        """A figure with a title and a sentence on what it shows and how to read it, and how much its ``runs`` answered."""
        self.figures.append(json.loads(drawn.to_json()))
        said = f"{sentence} {_counted(runs)}" if runs else sentence
        return (
            f'<figure><h3>{escaped(title)}</h3><div class="plot" data-figure="{len(self.figures) - 1}" role="img" '
            f'aria-label="{escaped(title)}" style="height:{int(drawn.layout.height)}px"></div>{_legend(drawn)}'
            f"<figcaption>{prose(said)}</figcaption></figure>"
        )


def _legend(drawn: go.Figure) -> str:
    """What the marks mean. Names are Plotly's text already, which is escaped; colours and shapes are our own."""
    items = []
    for trace in drawn.data:
        if not trace.name:
            continue
        is_bar, has_line = trace.type == "bar", "lines" in (trace.mode or "") if trace.type == "scatter" else False
        sign = (SIGNS[trace.line.dash] if has_line else "") + ("■" if is_bar else SIGNS[trace.marker.symbol])
        items.append(
            f'<li><i style="color:{trace.marker.color}" aria-hidden="true">{sign}</i>{trace.name.replace("<br>", " ")}</li>'
        )
    return f'<ul class="legend">{"".join(items)}</ul>' if items else ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; ``blocks`` are its markup, escaped already."""

    id: str
    title: str
    blocks: list[str]


def _counted(runs: Sequence[Run]) -> str:
    """How many questions the runs of a figure answered."""
    counts = sorted({run.summary.questions for run in runs})
    asked = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    failed, unfinished = sum(run.summary.failed for run in runs), sum(not run.summary.complete for run in runs)
    errors = f" {failed:,} answers ended with an error and count as wrong." if failed else ""
    return f"{asked} questions a run.{errors}" + (f" {plural(unfinished, 'run')} did not finish." if unfinished else "")
