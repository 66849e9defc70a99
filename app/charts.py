"""Traces as Plotly figures. What is drawn is read off the tables; points carry ``[run, token]`` so that a click can go there."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app import tables
from safe_core.events import Event
from safe_core.trace import statistics

LOOKS: Final = {
    "all agree": ("#009e73", "circle"),
    "majority": ("#56b4e9", "diamond"),
    "not safe": ("#e69f00", "triangle-left"),
    "fused, kept": ("#2b8cc4", "square-open"),
    "fused, replaced": ("#d55e00", "x"),
    "gate": ("#999999", "circle-open"),
    "unaligned": ("#cc79a7", "hourglass"),
    "unchecked": ("#bbbbbb", "line-ew-open"),
    "one model": ("#777777", "circle"),
}
"""Hue (Okabe and Ito's palette, the blue lightened to show on both themes) and shape of every state: either tells them apart."""

HATCHES: Final = {"fused, replaced": "x", "fused, kept": ".", "not safe": "\\", "majority": "-"}
PHASE_LOOKS: Final = {
    "draft": ("#2b8cc4", ""),
    "retokenize": ("#cc79a7", "-"),
    "verify": ("#009e73", "/"),
    "ensemble": ("#d55e00", "x"),
    "other": ("#999999", "."),
}
RUN_LOOKS: Final = (("#d55e00", "solid"), ("#2b8cc4", "dash"))


@dataclass(frozen=True, slots=True)
class Charted:
    """One run to draw: the pane's key, its title and its events."""

    key: str
    title: str
    events: Sequence[Event]


def consensus(runs: Sequence[Charted]) -> go.Figure:
    """The mean probability that decided at every token, one row per run, with the threshold of the majority test."""
    figure = make_subplots(rows=max(1, len(runs)), shared_xaxes=True, subplot_titles=_titles(runs), vertical_spacing=0.16)
    named: set[str] = set()
    for row, run in enumerate(runs, 1):
        table = tables.tokens(run.events)
        for state, part in table[table["mean p"].notna()].groupby("state", sort=False):
            colour, symbol = LOOKS[str(state)]
            figure.add_trace(
                go.Scatter(
                    x=part["token"],
                    y=part["mean p"],
                    mode="markers",
                    name=str(state),
                    legendgroup=str(state),
                    showlegend=state not in named,
                    marker={"color": colour, "symbol": symbol, "size": 8, "line": {"width": 1.5, "color": colour}},
                    customdata=[[run.key, int(token)] for token in part["token"]],
                    text=[_literal(text) for text in part["text"]],
                    hovertemplate="token %{x} %{text}<br>mean p %{y:.3f}<extra></extra>",
                ),
                row=row,
                col=1,
            )
            named.add(str(state))
        figure.add_hline(y=0.5, line={"dash": "dash", "width": 1, "color": "#888"}, row=row, col=1)
    figure.update_yaxes(range=[-0.04, 1.04], title="mean p")
    figure.update_xaxes(title="token", row=max(1, len(runs)), col=1)
    return _dressed(figure, "Consensus at every token, and the threshold 0.5", height=180 + 170 * max(1, len(runs)))


def exposures(runs: Sequence[Charted]) -> go.Figure:
    """How many OOV-like positions a run had met by each token: asked there all the same, or left alone."""
    figure = go.Figure()
    for run, (colour, dash) in zip(runs, RUN_LOOKS, strict=False):
        table = tables.tokens(run.events)
        asked = table["asked on a broken prefix"].astype(int)
        skipped = (table["state"] == "not safe").astype(int)
        for counted, words, width in ((asked, "asked there", 3), (skipped, "left alone", 1.5)):
            figure.add_trace(
                go.Scatter(
                    x=table["token"],
                    y=counted.cumsum(),
                    mode="lines",
                    name=f"{_literal(run.title)}: {words}",
                    line={"color": colour, "dash": dash, "width": width, "shape": "hv"},
                    customdata=[[run.key, int(token)] for token in table["token"]],
                    hovertemplate="token %{x}: %{y}<extra></extra>",
                )
            )
    figure.update_xaxes(title="token")
    figure.update_yaxes(title="OOV-like so far", rangemode="tozero")
    return _dressed(figure, "OOV-like positions met: models asked there, or left alone")


def shares(runs: Sequence[Charted]) -> go.Figure:
    """What share of the tokens came to stand in which way."""
    figure = go.Figure()
    counts = {title: tables.tokens(run.events)["state"].value_counts() for title, run in _by_title(runs)}
    for state, (colour, _) in LOOKS.items():
        values = [float(c.get(state, 0)) / max(1, int(c.sum())) for c in counts.values()]
        if any(values):
            figure.add_trace(_bar(list(counts), values, state, colour, HATCHES.get(state, ""), "%{x:.1%}"))
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    return _dressed(figure, "How tokens came to stand", stacked=True)


def times(runs: Sequence[Charted]) -> go.Figure:
    """Seconds in each phase."""
    figure = go.Figure()
    spent = {title: statistics(run.events)["ms"] for title, run in _by_title(runs)}
    for phase, (colour, hatch) in PHASE_LOOKS.items():
        values = [ms[phase] / 1e3 for ms in spent.values()]
        figure.add_trace(_bar(list(spent), values, phase, colour, hatch, "%{x:.2f} s"))
    figure.update_xaxes(title="seconds")
    return _dressed(figure, "Time by phase", stacked=True)


def fed(runs: Sequence[Charted]) -> go.Figure:
    """Tokens fed to each model, prompt included: what a run really computed."""
    figure = go.Figure()
    counts = {title: statistics(run.events)["fed"] for title, run in _by_title(runs)}
    models = list(dict.fromkeys(name for fed_by in counts.values() for name in fed_by))
    for model, (colour, hatch) in zip(models, PHASE_LOOKS.values(), strict=False):
        values = [float(fed_by.get(model, 0)) for fed_by in counts.values()]
        figure.add_trace(_bar(list(counts), values, _literal(model), colour, hatch, "%{x:,}"))
    figure.update_layout(barmode="group")
    figure.update_xaxes(title="tokens")
    return _dressed(figure, "Tokens fed per model")


def drafts(runs: Sequence[Charted]) -> go.Figure:
    """Drafted tokens: those that stand, and those that were computed and discarded."""
    figure = go.Figure()
    counts = {title: statistics(run.events) for title, run in _by_title(runs)}
    kept = [float(stats["drafted"] - stats["discarded"]) for stats in counts.values()]
    gone = [float(stats["discarded"]) for stats in counts.values()]
    figure.add_trace(_bar(list(counts), kept, "stand", "#009e73", "", "%{x:,}"))
    figure.add_trace(_bar(list(counts), gone, "discarded", "#d55e00", "x", "%{x:,}"))
    figure.update_xaxes(title="drafted tokens")
    return _dressed(figure, "Drafted tokens", stacked=True)


CHARTS: Final = (consensus, exposures, shares, times, fed, drafts)
"""All figures of a view, in the order they are shown."""


def _bar(titles: Sequence[str], values: Sequence[float], name: str, colour: str, hatch: str, shown: str) -> go.Bar:
    return go.Bar(
        y=list(titles),
        x=list(values),
        name=name,
        orientation="h",
        marker={
            "color": colour,
            "pattern": {"shape": hatch, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,.55)", "size": 7},
        },
        hovertemplate=f"%{{y}}, {name}: {shown}<extra></extra>",
    )


def _by_title(runs: Sequence[Charted]) -> list[tuple[str, Charted]]:
    return list(zip(tables.unique([_literal(run.title) for run in runs]), runs, strict=True))


def _titles(runs: Sequence[Charted]) -> list[str]:
    return [_literal(run.title) for run in runs] or [""]


def _literal(text: str) -> str:
    """Text as Plotly shows it: its small markup language is for our own words only, and ``%{`` begins a template."""
    return html.escape(text, quote=False).replace("%{", "%\u2060{").replace("$", "&#36;")


def _dressed(figure: go.Figure, title: str, *, stacked: bool = False, height: int = 300) -> go.Figure:
    """The common look. Text and grid take their colours from the page's style sheet, so that both themes work."""
    figure.update_layout(
        title={"text": title, "font": {"size": 15}, "x": 0, "xanchor": "left", "xref": "paper"},
        height=height,
        margin={"l": 56, "r": 16, "t": 64, "b": 48},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12},
        legend={"orientation": "h", "y": -0.28 if height == 300 else -0.16, "x": 0, "traceorder": "normal"},
        hoverlabel={"font": {"family": "ui-monospace, monospace"}},
        dragmode=False,
    )
    grid: dict[str, Any] = {"gridcolor": "rgba(128,140,152,.28)", "zerolinecolor": "rgba(128,140,152,.28)"}
    figure.update_xaxes(**grid)
    figure.update_yaxes(automargin=True, **grid)
    if any(isinstance(drawn, go.Bar) for drawn in figure.data):  # the left run on top, as it is the left one on the page
        figure.update_yaxes(autorange="reversed")
    if stacked:
        figure.update_layout(barmode="stack")
    return figure
