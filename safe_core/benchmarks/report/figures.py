"""Figures of the report. Foreign text in them is literal; what hue and shape mean is told by the board's legends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from safe_core.benchmarks import published
from safe_core.benchmarks.report.numbers import BINS, Entry, binned, by_length, entry, wilson
from safe_core.benchmarks.report.results import Run
from safe_core.benchmarks.report.schema import Speed, SpeedRow
from safe_core.benchmarks.report.words import literal, task_title, wrapped

if TYPE_CHECKING:
    import plotly.graph_objects as go

LOOKS: Final = {
    "single": ("#808890", "diamond"),
    "UniTE": ("#d55e00", "x"),
    "UniTE+SAFE": ("#2b8cc4", "circle"),
    "GaC": ("#e69f00", "triangle-up"),
    "GaC+SAFE": ("#009e73", "square"),
}
"""Hue (Okabe and Ito's palette, the blue lightened to show on both themes) and shape of every method."""

CALLED: Final = {"single": "one model"}

PHASES: Final = {
    "draft": ("#2b8cc4", ""),
    "retokenize": ("#cc79a7", "-"),
    "verify": ("#009e73", "/"),
    "ensemble": ("#d55e00", "x"),
    "other": ("#999999", "."),
}

VARIANTS: Final = {
    "single": ("single", "diamond", "solid"),
    "unite": ("UniTE", "x", "solid"),
    "gac": ("GaC", "triangle-up", "solid"),
    "safe": ("UniTE+SAFE", "circle", "solid"),
    "safe-gac": ("GaC+SAFE", "square", "solid"),
}

SPARE: Final = (("star", "dash"), ("cross", "dot"), ("pentagon", "dashdot"), ("bowtie", "dash"), ("hourglass", "dot"))
"""Shapes and dashes of further variants of SAFE, in its hue."""


def dots(entries: Sequence[Entry]) -> go.Figure:
    """A row per entry: a filled mark with its interval where it was measured here, an open mark where the paper reports it."""
    import plotly.graph_objects as go

    figure = go.Figure()
    rows = Rows([e.label + ("" if e.rate is None else f" ({e.rate:.1f})") for e in entries])
    for kind, (colour, symbol) in LOOKS.items():
        for here in (True, False):
            part = [(at, e) for at, e in zip(rows.at, entries, strict=True) if e.kind == kind and e.here is here]
            if not part:
                continue
            bars = [e.interval or (e.accuracy, e.accuracy) for _, e in part]
            figure.add_trace(
                go.Scatter(
                    x=[e.accuracy for _, e in part],
                    y=[at for at, _ in part],
                    mode="markers",
                    name=CALLED.get(kind, kind) + ("" if here else ", paper"),
                    marker=_marker(colour, symbol if here else f"{symbol}-open"),
                    error_x=None if not here else _bars([e.accuracy for _, e in part], bars, colour),
                    text=[literal(_said(e)) for _, e in part],
                    hovertemplate="%{text}<extra></extra>",
                )
            )
    if published_from := next((at for at, e in zip(rows.at, entries, strict=True) if not e.here), 0.0):
        figure.add_hline(y=published_from - 0.75, line={"dash": "dot", "width": 1, "color": "#888"})
    figure.update_xaxes(title="right, %")
    return _rowed(figure, rows)


def _said(e: Entry) -> str:
    interval = "" if e.interval is None else f", 95 % {e.interval[0]:.1f} to {e.interval[1]:.1f}"
    rate = "" if e.rate is None else f", E/T {e.rate:.2f} %"
    return f"{e.label}: {e.accuracy:.2f} %{interval}{rate}" + ("" if e.questions is None else f", {e.questions:,} questions")


def exposures(runs: Sequence[Run]) -> go.Figure:
    """Per run: how often models were asked on an OOV-like prefix, against accuracy."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for kind, (colour, symbol) in LOOKS.items():
        part = [(r, entry(r)) for r in runs if r.summary.kind == kind]
        if not part:
            continue
        figure.add_trace(
            go.Scatter(
                x=[100 * r.summary.statistics.exposure for r, _ in part],
                y=[e.accuracy for _, e in part],
                mode="markers",
                name=kind,
                marker=_marker(colour, symbol),
                error_y=_bars([e.accuracy for _, e in part], [e.interval or (0.0, 0.0) for _, e in part], colour),
                text=[literal(_said(e)) for _, e in part],
                hovertemplate="%{text}<br>%{x:.2f} exposures per 100 tokens<extra></extra>",
            )
        )
    most = max((100 * run.summary.statistics.exposure for run in runs), default=0.0) or 1.0
    figure.update_xaxes(title="exposures per 100 tokens", range=[-0.04 * most, 1.06 * most])
    figure.update_yaxes(title="right, %")
    return _dressed(figure, height=340)


def by_exposure(runs: Sequence[Run]) -> go.Figure:
    """Per run, questions sorted into bins by their exposure: the share answered rightly in each."""
    import plotly.graph_objects as go

    figure = go.Figure()
    places = {name: place for place, (name, _) in enumerate(BINS)}
    for at, run in enumerate(runs):
        colour, symbol = LOOKS[run.summary.kind]
        bins = binned(run)
        shares = [100 * right / questions for _, questions, right in bins]
        ranges = [(100 * low, 100 * high) for low, high in (wilson(right, questions) for _, questions, right in bins)]
        aside = 0.5 * (at - (len(runs) - 1) / 2) / len(runs)  # so that intervals stand beside each other
        figure.add_trace(
            go.Scatter(
                x=[places[name] + aside for name, _, _ in bins],
                y=shares,
                mode="lines+markers",
                name=literal(run.title),
                line={"color": colour, "width": 1.5, "dash": ("solid", "dash", "dot", "dashdot")[at % 4]},
                marker=_marker(colour, symbol),
                error_y=_bars(shares, ranges, colour),
                text=[f"{name}: {right} of {questions} right" for name, questions, right in bins],
                hovertemplate="%{text}, %{y:.1f} %<extra></extra>",
            )
        )
    figure.update_xaxes(
        title="exposure of the question", tickvals=list(places.values()), ticktext=list(places), range=[-0.5, 3.5]
    )
    figure.update_yaxes(title="right, %")
    return _dressed(figure, height=360)


def drafts(runs: Sequence[Run]) -> go.Figure:
    """Per run: the share of drafted tokens that was thrown away."""
    import plotly.graph_objects as go

    rows = _of_runs(runs)
    wasted = [100 * r.summary.statistics.discarded / r.summary.statistics.drafted for r in runs]
    figure = go.Figure(
        go.Bar(
            x=wasted,
            y=rows.at,
            width=0.9,
            orientation="h",
            showlegend=False,
            marker={"color": [LOOKS[r.summary.kind][0] for r in runs]},
            text=[f" {share:.1f} %" for share in wasted],
            textposition="outside",
            cliponaxis=False,
            hovertext=[f"{r.summary.statistics.discarded:,.0f} of {r.summary.statistics.drafted:,.0f} drafts" for r in runs],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    figure.update_xaxes(title="drafts thrown away, %", range=[0, max(1.0, 1.25 * max(wasted))])
    return _rowed(figure, rows)


def phases(runs: Sequence[Run]) -> go.Figure:
    """Per run: where the time goes, as shares of the whole."""
    import plotly.graph_objects as go

    figure, rows = go.Figure(), _of_runs(runs)
    for phase, (colour, hatch) in PHASES.items():
        shares = [100 * r.summary.statistics.ms.get(phase, 0.0) / total_ms(r) for r in runs]
        figure.add_trace(
            go.Bar(
                x=shares,
                y=rows.at,
                width=0.9,
                name=phase,
                orientation="h",
                marker={
                    "color": colour,
                    "pattern": {"shape": hatch, "fillmode": "overlay", "fgcolor": "#fff", "fgopacity": 0.5, "size": 7},
                },
                hovertemplate=f"{phase}: %{{x:.1f}} %<extra></extra>",
            )
        )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(title="time, %", range=[0, 100])
    return _rowed(figure, rows)


class Rows:
    """Labelled rows below each other, each as high as its label has lines. ``at`` is where their middles are."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.texts = [wrapped(label) for label in labels]
        heights = [1.5 + 0.9 * text.count("<br>") for text in self.texts]
        self.at = [sum(heights[:number]) + heights[number] / 2 for number in range(len(heights))]
        self.height = sum(heights)


def total_ms(run: Run) -> float:
    """Time of all phases together."""
    return sum(run.summary.statistics.ms.get(phase, 0.0) for phase in PHASES)


def _of_runs(runs: Sequence[Run]) -> Rows:
    return Rows([f"{task_title(r.summary.task)}: {r.title}" for r in runs])


def _rowed(figure: go.Figure, rows: Rows) -> go.Figure:
    figure.update_yaxes(tickvals=rows.at, ticktext=rows.texts, range=[rows.height, 0], zeroline=False, ticks="")
    return _dressed(figure, height=70 + int(17 * rows.height))


def lengths(speed: Speed, value: Callable[[SpeedRow], float], title: str, paper: bool = False) -> go.Figure:
    """A line per method over response length: the mean over prompts of ``value``."""
    import plotly.graph_objects as go

    figure = go.Figure()
    looks = variant_looks(speed)
    for variant, (name, colour, symbol, dash) in looks.items():
        points = by_length(speed, variant, value)
        figure.add_trace(
            go.Scatter(
                x=list(points),
                y=list(points.values()),
                mode="lines+markers",
                name=literal(name),
                line={"color": colour, "dash": dash, "width": 2},
                marker=_marker(colour, symbol),
                hovertemplate=f"{literal(name)}, %{{x}} tokens: %{{y:.3g}}<extra></extra>",
            )
        )
    if paper:
        for kind, (least, most) in published.OVER_SINGLE_AT_1000.items():
            colour, symbol = LOOKS[kind]
            figure.add_trace(
                go.Scatter(
                    x=[1000],
                    y=[(least + most) / 2],
                    mode="markers",
                    name=f"{kind}, paper",
                    marker=_marker(colour, f"{symbol}-open"),
                    error_y=_bars([(least + most) / 2], [(least, most)], colour),
                    hovertemplate=f"paper, {kind}: {least:.2f} to {most:.2f} times a single model<extra></extra>",
                )
            )
        figure.add_hline(y=1.0, line={"dash": "dash", "width": 1, "color": "#888"})
    figure.update_xaxes(title="response length, tokens", rangemode="tozero")
    figure.update_yaxes(title=title, rangemode="tozero")
    return _dressed(figure, height=340)


def variant_looks(speed: Speed) -> dict[str, tuple[str, str, str, str]]:
    """Name, hue, shape and dash of every method of a speed measurement."""
    found, spare = {}, list(SPARE)
    for variant in dict.fromkeys(row.variant for row in speed.rows):
        if variant in VARIANTS:
            kind, symbol, dash = VARIANTS[variant]
            found[variant] = (CALLED.get(kind, kind), LOOKS[kind][0], symbol, dash)
        else:
            symbol, dash = spare.pop(0) if spare else ("circle-open", "dot")
            found[variant] = (variant, LOOKS["UniTE+SAFE"][0], symbol, dash)
    return found


def _marker(colour: str, symbol: str) -> dict[str, Any]:
    return {"color": colour, "symbol": symbol, "size": 10, "line": {"width": 1.5, "color": colour}}


def _bars(middles: Sequence[float], ranges: Sequence[tuple[float, float]], colour: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - at for at, (_, high) in zip(middles, ranges, strict=True)],
        "arrayminus": [at - low for at, (low, _) in zip(middles, ranges, strict=True)],
        "color": colour,
        "thickness": 1.5,
        "width": 4,
    }


def _dressed(figure: go.Figure, *, height: int) -> go.Figure:
    """The common look. Text, grid and hover colours are set by the page's script, so that both themes work."""
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 60, "r": 16, "t": 8, "b": 52},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12},
        showlegend=False,
        hovermode="closest",
        dragmode=False,
    )
    figure.update_yaxes(automargin=True)
    figure.update_xaxes(automargin=True)
    return figure
