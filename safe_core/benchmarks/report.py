"""One offline page of everything that was measured, beside what the paper reports.

Reads the files that the other benchmarks write (``summary.json`` with its ``results.jsonl``, the JSON of ``speed`` and of
``tokenizers``), wherever they lie below the folders that are given, and draws tables and curves. Nothing is counted here that
a run has counted already; a file that is broken or foreign is named on the page and left out.

Everything a file says is data: it reaches the page escaped, or as JSON that is only ever drawn.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import os
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from safe_core.benchmarks import published
from safe_core.types import InputError, Method, Settings

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MOST_JSON_BYTES: Final = 16 << 20
MOST_LINES_BYTES: Final = 512 << 20
"""The largest file of either kind that is read; no benchmark writes larger ones."""
ROUNDED: Final = 1e-3
"""What rounding may put an accuracy outside its interval."""
SIMILAR_FROM: Final = 0.9
"""Tokenizers that cut at least this share of a word list alike count as similar; those of the paper's similar pair do."""


# --- what the files hold -----------------------------------------------------------------------------------------------------

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Amount = Annotated[float, msgspec.Meta(ge=0.0)]
Whole = Annotated[int, msgspec.Meta(ge=0)]
Some = Annotated[int, msgspec.Meta(ge=1)]
Names = Annotated[list[str], msgspec.Meta(min_length=1)]


class Numbers(msgspec.Struct, frozen=True):
    """What is used of a run's statistics (``safe_core.trace.Statistics``), of one question or summed over all."""

    tokens: Amount = 0.0
    ensembles: Amount = 0.0
    ensemble_rate: Amount = 0.0
    drafted: Amount = 0.0
    discarded: Amount = 0.0
    oov: Amount = 0.0
    asked_oov: Amount = 0.0
    engine_share: Amount = 0.0
    tokens_per_second: Amount = 0.0
    ms: dict[str, Amount] = {}

    @property
    def exposure(self) -> float:
        """Share of the response's tokens at which a model was asked though it read an OOV-like prefix."""
        return self.asked_oov / self.tokens if self.tokens else 0.0


class Subject(msgspec.Struct, frozen=True):
    """One subject of a task, as a summary has it."""

    questions: Whole
    correct: Whole
    accuracy: Share


class Summary(msgspec.Struct, frozen=True):
    """``summary.json``: one method with its models on one task. ``models`` has the drafter first."""

    task: str
    method: Method
    label: str
    models: Names
    questions: Some
    correct: Whole
    accuracy: Share
    interval: tuple[Share, Share]
    statistics: Numbers
    settings: dict[str, Any] = {}
    failed: Whole = 0
    complete: bool = True
    subjects: dict[str, Subject] = {}
    harness_share: Share = 0.0
    seconds: Amount = 0.0
    versions: dict[str, str] = {}

    @property
    def called(self) -> str:
        """The models as words, drafter first; of a folder its name alone."""
        return " + ".join(PurePosixPath(model).name if model[:1] in "/.~" else model for model in self.models)

    @property
    def kind(self) -> str:
        """The method as the paper names it; ``single`` for one model alone."""
        fused = "GaC" if "gac" in (self.method, self.settings.get("ensemble", "unite")) else "UniTE"
        return "single" if self.method == "single" else fused + "+SAFE" * (self.method == "safe")


class Question(msgspec.Struct, frozen=True):
    """What is used of a line of ``results.jsonl``."""

    correct: bool | None = None
    statistics: Numbers | None = None


class SpeedRow(msgspec.Struct, frozen=True):
    """One method at one length on one prompt."""

    variant: str
    tokens: Some
    rate_over_own: Annotated[float, msgspec.Meta(gt=0.0)]
    prompt: str = ""
    engine_share: Amount = 0.0
    ensemble_rate: Amount = 0.0
    discarded: Amount = 0.0
    fed_over_least: dict[str, Amount] = {}


class Speed(msgspec.Struct, frozen=True):
    """What ``speed`` saves."""

    rows: Annotated[list[SpeedRow], msgspec.Meta(min_length=1)]
    models: list[str] = []
    dtype: str = ""
    title: str = ""


class Agreement(msgspec.Struct, frozen=True):
    """What ``tokenizers`` saves."""

    names: Names
    words: Some
    agreement: list[list[Share]]
    agreement_with_blank: list[list[Share]]
    oov_like: list[list[Share]]
    text_bytes: Whole

    def __post_init__(self) -> None:
        size = len(self.names)
        for matrix in (self.agreement, self.agreement_with_blank, self.oov_like):
            if [len(row) for row in matrix] != [size] * size:
                raise ValueError(f"a matrix has not {size} rows of {size} numbers")

    def between(self, one: str, other: str) -> float | None:
        """How alike two models' tokenizers cut words; ``None`` where either was not compared."""
        at = [next((at for at, name in enumerate(self.names) if f"/{m}".endswith(f"/{name}")), None) for m in (one, other)]
        return None if at[0] is None or at[1] is None else self.agreement[at[0]][at[1]]


@dataclass(frozen=True, slots=True)
class File:
    """A file's name as it is shown, the folder that says which files belong together, and its bytes."""

    name: str
    folder: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Run:
    """A summary, where it was found, what it is called here, and its questions where they were there too."""

    source: str
    summary: Summary
    title: str = ""
    rows: tuple[Question, ...] = ()


@dataclass(slots=True)
class Results:
    """All that could be used. ``problems`` are sentences that name the files that could not."""

    runs: list[Run] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, task: str) -> list[Run]:
        """Runs of one task, those of one model first, then UniTE before GaC, as the paper has them."""
        order = list(LOOKS)
        return sorted((r for r in self.runs if r.summary.task == task), key=lambda r: (order.index(r.summary.kind), r.title))

    @property
    def others(self) -> list[tuple[int, str]]:
        """How much there is besides runs."""
        return [(len(self.speeds), "speed measurement"), (len(self.agreements), "tokenizer comparison")]

    @property
    def said(self) -> str:
        """What there is, as words."""
        return ", ".join(plural(count, name) for count, name in [(len(self.runs), "run"), *self.others] if count)

    def ordered(self) -> list[Run]:
        """All runs, task by task in the paper's order."""
        tasks = dict.fromkeys([*published.TASKS, *sorted(run.summary.task for run in self.runs)])
        return [run for task in tasks for run in self.of(task)]


# --- reading -----------------------------------------------------------------------------------------------------------------


def files_of(paths: Iterable[str | Path]) -> Iterator[File]:
    """Every ``*.json`` and ``results.jsonl`` below these folders, and the files among these paths.

    Raises InputError for a path that is not there; a file that cannot be read comes without bytes.
    """
    for given in map(Path, paths):
        if given.is_dir():
            inside = sorted(Path(folder) / name for folder, _, names in os.walk(given) for name in names if is_ours(name))
            for path in inside:
                yield File(f"{given.resolve().name}/{path.relative_to(given).as_posix()}", str(path.parent), read_bytes(path))
        elif given.exists():
            yield File(given.name, str(given.parent), read_bytes(given))
        else:
            raise InputError(f"There is no file or folder {str(given)!r}; name what a benchmark wrote.")


def is_ours(name: str) -> bool:
    """Whether a file of this name may be a benchmark's."""
    return name.endswith(".json") or name == "results.jsonl"


def read_bytes(path: Path) -> bytes:
    """What a file holds, cut behind the limit of its kind; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read((MOST_LINES_BYTES if path.suffix == ".jsonl" else MOST_JSON_BYTES) + 1)
    except OSError:
        return b""


def results_of(files: Iterable[File]) -> Results:
    """What the files hold. Raises InputError where none can be used."""
    results = Results()
    lines: list[tuple[File, tuple[Question, ...]]] = []
    folders: list[str] = []
    for file in files:
        if PurePosixPath(file.name).name == "settings.json":  # of a run: says nothing that its summary does not
            continue
        try:
            if file.name.endswith(".jsonl"):
                lines.append((file, _questions(file.data)))
                continue
            held = _held(file.data)
        except _Unusable as problem:
            results.problems.append(f"{_plain(file.name)} was left out: {problem}.")
            continue
        for one in held:
            if isinstance(one, Summary):
                results.runs.append(Run(file.name, one))
                folders.append(file.folder)
            elif isinstance(one, Speed):
                results.speeds.append(one)
            else:
                results.agreements.append(one)
    if not (results.runs or results.speeds or results.agreements):
        found = " ".join(results.problems) or "There is no summary.json, speed.json or tokenizers.json."
        raise InputError(f"Nothing here can be reported: {found} Name folders that the benchmarks wrote.")
    _join(results, folders, lines)
    results.runs = _titled(results.runs)
    return results


class _Unusable(Exception):
    """Why a file was left out, as the end of a sentence."""


def _held(data: bytes) -> list[Summary | Speed | Agreement]:
    if not data:
        raise _Unusable("it is empty or cannot be read")
    if len(data) > MOST_JSON_BYTES:
        raise _Unusable(f"it is larger than {MOST_JSON_BYTES >> 20} MB")
    try:
        raw = msgspec.json.decode(data)
        kind = raw.get("kind") if isinstance(raw, dict) else None
        if kind == "accuracy":
            return [_checked(msgspec.convert(raw, Summary))]
        if kind == "tokenizers":
            return [msgspec.convert(raw, Agreement)]
        if kind == "speed":
            return list(_speeds(raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _Unusable(_plain(str(error).rstrip("."))) from error
    raise _Unusable("its 'kind' is none of accuracy, speed and tokenizers")


def _checked(summary: Summary) -> Summary:
    low, high = summary.interval
    if summary.correct > summary.questions:
        raise ValueError(f"{summary.correct} of {summary.questions} questions cannot be right")
    if not low - ROUNDED <= summary.accuracy <= high + ROUNDED:
        raise ValueError("the accuracy lies outside its interval")
    return summary


def _speeds(raw: dict[str, Any]) -> Iterator[Speed]:
    """A measurement, or several by name in one file (random weights at several rates of disagreement)."""
    parts = {"": raw} if "rows" in raw else {k: v for k, v in raw.items() if isinstance(v, dict) and "rows" in v}
    if not parts:
        raise ValueError("it holds no rows")
    for title, part in parts.items():
        yield msgspec.convert({**part, "title": title}, Speed)


def _questions(data: bytes) -> tuple[Question, ...]:
    if len(data) > MOST_LINES_BYTES:
        raise _Unusable(f"it is larger than {MOST_LINES_BYTES >> 20} MB")
    decoder = msgspec.json.Decoder(Question)
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            if line.strip():
                found.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _Unusable(f"line {number}: {_plain(str(error).rstrip('.'))}") from error
    return tuple(found)


def _join(results: Results, folders: Sequence[str], lines: Sequence[tuple[File, tuple[Question, ...]]]) -> None:
    """Give every run the questions that lie beside its summary and count as it does."""
    for file, rows in lines:
        right = sum(bool(row.correct) for row in rows)
        beside = [i for i, folder in enumerate(folders) if folder == file.folder]
        fits = [i for i in beside if (results.runs[i].summary.questions, results.runs[i].summary.correct) == (len(rows), right)]
        if len(fits) == 1:
            results.runs[fits[0]] = replace(results.runs[fits[0]], rows=rows)
        elif not beside:
            results.problems.append(f"{_plain(file.name)} was left out: there is no summary.json beside it.")
        elif not fits:
            results.problems.append(
                f"{_plain(file.name)} was left out: its {len(rows)} questions, {right} right, are not those of the summary "
                "beside it."
            )
        else:
            results.problems.append(
                f"{_plain(file.name)} was left out: it fits several summaries; keep each run in its own folder."
            )


def _titled(runs: Sequence[Run]) -> list[Run]:
    """Runs with their titles: the label, and of runs of one task with the same label whatever tells them apart."""
    groups: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.summary.task, run.summary.label].append(run)
    return [replace(run, title=_title(run, groups[run.summary.task, run.summary.label])) for run in runs]


def _title(run: Run, alike: Sequence[Run]) -> str:
    if len(alike) == 1:
        return run.summary.label
    facts = [{"models": other.summary.called, **other.summary.settings} for other in alike]
    own = {"models": run.summary.called, **run.summary.settings}
    differing = [key for key in dict.fromkeys(k for fact in facts for k in fact) if len({_key(f.get(key)) for f in facts}) > 1]
    default = asdict(Settings())
    words = [_setting(key, own.get(key)) for key in differing if own.get(key, default.get(key)) != default.get(key)]
    if sum(all(_key(f.get(key)) == _key(own.get(key)) for key in differing) for f in facts) > 1:
        words.append(f"{run.summary.questions:,} questions, {PurePosixPath(run.source).parent}")
    return f"{run.summary.label} · {', '.join(words) or 'default settings'}"


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


SYMBOLS: Final = {"lam": "lambda", "top_k": "k"}


def _setting(key: str, value: Any) -> str:
    """One setting as words."""
    match key, value:
        case "check_oov", bool():
            return "OOV-like check" if value else "no OOV-like check"
        case "check_consensus", bool():
            return "consensus check" if value else "no consensus check"
        case "sharpen", "none":
            return "no sharpening"
        case "sharpen", "geom":
            return "geometric sharpening"
        case "sharpen", "heur":
            return "heuristic sharpening"
        case "models", _:
            return str(value)
        case _:
            shown = value if isinstance(value, str) else "default" if value is None else json.dumps(value)
            return f"{SYMBOLS.get(key, key.replace('_', ' '))} {shown}"


def varied(summary: Summary) -> dict[str, Any]:
    """The settings of a SAFE run that an ablation changes, where they are not the paper's."""
    default = asdict(Settings())
    keys = ("n", "lam", "sharpen", "top_k", "weights", "temperature", "commit", "after_confirm", "check_oov", "check_consensus")
    held = summary.settings
    return {key: held[key] for key in keys if key in held and held[key] != default[key]}


def wilson(correct: int, questions: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.959964
    p, n = correct / questions, questions
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


# --- figures -----------------------------------------------------------------------------------------------------------------

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
SIGNS: Final = {
    "diamond": "◆", "x": "✖", "circle": "●", "triangle-up": "▲", "square": "■",
    "diamond-open": "◇", "x-open": "✕", "circle-open": "○", "triangle-up-open": "△", "square-open": "□",
    "star": "★", "cross": "✚", "pentagon": "⬟", "bowtie": "⧓", "hourglass": "⧗",
    "solid": "─", "dash": "╌", "dot": "┈", "dashdot": "─·",
}  # fmt: skip
"""Shapes and dashes as characters of a legend."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One accuracy to draw, in percent. What the paper reports has no interval and no number of questions."""

    label: str
    kind: str
    accuracy: float
    interval: tuple[float, float] | None = None
    rate: float | None = None
    questions: int | None = None

    @property
    def here(self) -> bool:
        """Whether it was measured here."""
        return self.questions is not None


def entry(run: Run, label: str | None = None) -> Entry:
    """A run as it is drawn."""
    s = run.summary
    low, high = s.interval
    rate = None if s.method == "single" else 100 * s.statistics.ensemble_rate
    return Entry(run.title if label is None else label, s.kind, 100 * s.accuracy, (100 * low, 100 * high), rate, s.questions)


def reported(row: published.Row, task: str) -> Entry:
    """A published number as it is drawn."""
    kind = row.method if row.method in LOOKS else "UniTE+SAFE"
    label = row.label if row.method in LOOKS else row.method
    return Entry(f"paper: {label}", kind, row.accuracy[task], rate=row.rate.get(task))


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
                    text=[_literal(_said(e)) for _, e in part],
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
                text=[_literal(_said(e)) for _, e in part],
                hovertemplate="%{text}<br>%{x:.2f} exposures per 100 tokens<extra></extra>",
            )
        )
    most = max((100 * run.summary.statistics.exposure for run in runs), default=0.0) or 1.0
    figure.update_xaxes(title="exposures per 100 tokens", range=[-0.04 * most, 1.06 * most])
    figure.update_yaxes(title="right, %")
    return _dressed(figure, height=340)


BINS: Final = (("none", 0.0), ("up to 1 %", 0.01), ("1 to 5 %", 0.05), ("over 5 %", math.inf))
"""Exposure of a question: the share of its tokens at which a model was asked on an OOV-like prefix, and the bin's upper end."""


def binned(run: Run) -> list[tuple[str, int, int]]:
    """Per bin of exposure: its name, its questions, and how many of them were answered rightly; empty bins are left out."""
    counts = {name: [0, 0] for name, _ in BINS}
    for row in run.rows:
        if row.statistics is not None and row.statistics.tokens:
            name = next(name for name, upper in BINS if row.statistics.exposure <= upper)
            counts[name][0] += 1
            counts[name][1] += bool(row.correct)
    return [(name, questions, right) for name, (questions, right) in counts.items() if questions]


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
                name=_literal(run.title),
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
        shares = [100 * r.summary.statistics.ms.get(phase, 0.0) / _total_ms(r) for r in runs]
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


def _total_ms(run: Run) -> float:
    return sum(run.summary.statistics.ms.get(phase, 0.0) for phase in PHASES)


class Rows:
    """Labelled rows below each other, each as high as its label has lines. ``at`` is where their middles are."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.texts = [_wrapped(label) for label in labels]
        heights = [1.5 + 0.9 * text.count("<br>") for text in self.texts]
        self.at = [sum(heights[:number]) + heights[number] / 2 for number in range(len(heights))]
        self.height = sum(heights)


def _of_runs(runs: Sequence[Run]) -> Rows:
    return Rows([f"{_task(r.summary.task)}: {r.title}" for r in runs])


def _rowed(figure: go.Figure, rows: Rows) -> go.Figure:
    figure.update_yaxes(tickvals=rows.at, ticktext=rows.texts, range=[rows.height, 0], zeroline=False, ticks="")
    return _dressed(figure, height=70 + int(17 * rows.height))


def lengths(speed: Speed, value: Callable[[SpeedRow], float], title: str, paper: bool = False) -> go.Figure:
    """A line per method over response length: the mean over prompts of ``value``."""
    import plotly.graph_objects as go

    figure = go.Figure()
    looks = _variant_looks(speed)
    for variant, (name, colour, symbol, dash) in looks.items():
        points = _by_length(speed, variant, value)
        figure.add_trace(
            go.Scatter(
                x=list(points),
                y=list(points.values()),
                mode="lines+markers",
                name=_literal(name),
                line={"color": colour, "dash": dash, "width": 2},
                marker=_marker(colour, symbol),
                hovertemplate=f"{_literal(name)}, %{{x}} tokens: %{{y:.3g}}<extra></extra>",
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


def _variant_looks(speed: Speed) -> dict[str, tuple[str, str, str, str]]:
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


def _by_length(speed: Speed, variant: str, value: Callable[[SpeedRow], float]) -> dict[int, float]:
    held: defaultdict[int, list[float]] = defaultdict(list)
    for row in speed.rows:
        if row.variant == variant:
            held[row.tokens].append(value(row))
    return {tokens: sum(values) / len(values) for tokens, values in sorted(held.items())}


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


def _literal(text: str) -> str:
    """Text as Plotly shows it: its small markup language is for our own words only, and ``%{`` begins a template."""
    return html.escape(_plain(text), quote=False).replace("%{", "%\u2060{").replace("$", "&#36;")


def _plain(text: str) -> str:
    """Text in which nothing is hidden: signs for control characters, marks of direction and the like."""
    return "".join(c if c.isprintable() else " " if c in "\t\n\r" else f"[U+{ord(c):04X}]" for c in text)


def _wrapped(text: str, width: int = 24) -> str:
    parts = textwrap.wrap(_plain(text), width, max_lines=4, placeholder=" …") or [""]
    return "<br>".join(map(_literal, parts))


def _task(task: str) -> str:
    return published.TASKS.get(task, task)


# --- sections ----------------------------------------------------------------------------------------------------------------


class Board:
    """Collects a page's figures while its text is written."""

    def __init__(self) -> None:
        self.figures: list[dict[str, Any]] = []

    def figure(self, drawn: go.Figure, title: str, sentence: str) -> str:
        """A figure with a title and a sentence on what it shows and how to read it."""
        self.figures.append(json.loads(drawn.to_json()))
        number = len(self.figures)
        return (
            f'<figure><h3>{_text(title)}</h3><div class="plot" data-figure="{number - 1}" role="img" '
            f'aria-label="{_text(title)}" style="height:{int(drawn.layout.height)}px"></div>{_legend(drawn)}'
            f"<figcaption>{_sentence(sentence)}</figcaption></figure>"
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


def _text(text: str) -> str:
    return html.escape(_plain(text))


def _sentence(text: str) -> str:
    """Text of our own around what files say; a percent sign stays with its number."""
    return _text(text).replace(" %", "&nbsp;%")


def _note(text: str, kind: str = "note") -> str:
    return f'<p class="{kind}">{_sentence(text)}</p>'


def _lacking(tasks: Sequence[str], results: Results) -> list[str]:
    """A sentence on the tasks that nothing here was measured on."""
    none = [_task(task) for task in tasks if not results.of(task)]
    return [_note(f"Not in these folders: a run of {_listed(none)}; published numbers only.", "lacking")] if none else []


def _listed(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else list(words))


def _counted(runs: Sequence[Run]) -> str:
    """How many questions the runs of a figure answered."""
    counts = sorted({run.summary.questions for run in runs})
    asked = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    failed, unfinished = sum(run.summary.failed for run in runs), sum(not run.summary.complete for run in runs)
    errors = f" {failed:,} answers ended with an error and count as wrong." if failed else ""
    return f"{asked} questions a run.{errors}" + (f" {plural(unfinished, 'run')} did not finish." if unfinished else "")


def plural(count: int, name: str) -> str:
    """A number and what it counts."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


BREAK: Final = "\x1f"
"""Ends a line in a cell; foreign text never holds it, being plain (``_plain``)."""


def _table(frame: pd.DataFrame, kind: str = "numbers") -> str:
    """A table as markup, every cell and heading escaped; ``BREAK`` in a cell ends a line."""
    import pandas as pd

    with pd.option_context("display.max_colwidth", None, "display.html.border", 0):
        markup: str = frame.to_html(escape=True, classes=kind, na_rep="–", index_names=False)
    return f'<div class="scroll" tabindex="0">{markup.replace(BREAK, "<br>")}</div>'


def _compared(groups: Mapping[str, Sequence[tuple[str, Mapping[str, Entry]]]], tasks: Sequence[str]) -> str:
    """Lines of several origins as one table, a column per task: accuracy, E/T in brackets, and below it the interval."""
    import pandas as pd

    lines = [(origin, label, by_task) for origin, part in groups.items() for label, by_task in part]
    index = pd.MultiIndex.from_tuples([(origin, _plain(label)) for origin, label, _ in lines])
    cells = [[_cell(by_task.get(task)) for task in tasks] for _, _, by_task in lines]
    return _table(pd.DataFrame(cells, index=index, columns=[_task(task) for task in tasks]), "numbers grouped")


def _cell(e: Entry | None) -> str:
    if e is None:
        return "–"
    rate = "" if e.rate is None else f" ({e.rate:.2f})"
    interval = "" if e.interval is None else f"{BREAK}{e.interval[0]:.1f} – {e.interval[1]:.1f}, of {e.questions:,}"
    return f"{e.accuracy:.2f}{rate}{interval}"


def _here(runs: Iterable[Run], label: Callable[[Run], str] = lambda run: run.title) -> list[tuple[str, dict[str, Entry]]]:
    """Lines of a table: runs of different tasks stand in one line where they are called alike."""
    lines: list[tuple[str, dict[str, Entry]]] = []
    for run in runs:
        name, task = label(run), run.summary.task
        held = next((by_task for other, by_task in lines if other == name and task not in by_task), None)
        if held is None:
            lines.append((name, {task: entry(run)}))
        else:
            held[task] = entry(run)
    return lines


def _paper(rows: Sequence[published.Row]) -> list[tuple[str, dict[str, Entry]]]:
    return [
        (row.label if row.method in LOOKS else row.method, {task: reported(row, task) for task in row.accuracy}) for row in rows
    ]


def _in_short(results: Results) -> list[str]:
    """One sentence for every task and set of models that was run both with and without SAFE."""
    said = []
    for run in results.ordered():
        s = run.summary
        if s.method != "safe" or varied(s):
            continue
        for other in results.runs:
            o = other.summary
            same = (o.task, o.models, o.questions) == (s.task, s.models, s.questions)
            if same and o.method in ("unite", "gac") and s.kind == f"{o.kind}+SAFE":
                apart = s.interval[0] > o.interval[1] or o.interval[0] > s.interval[1]
                intervals = "do not overlap" if apart else "overlap"
                said.append(
                    f"{_task(s.task)}, {s.called}: {s.kind} {100 * s.accuracy:.1f} %, "
                    f"{o.kind} {100 * o.accuracy:.1f} % ({100 * (s.accuracy - o.accuracy):+.1f} points of {s.questions:,} "
                    f"questions; the 95 % intervals {intervals})."
                )
    return said


def _summary(results: Results, board: Board) -> Section:
    questions = sum(run.summary.questions for run in results.runs)
    sets = len({tuple(run.summary.models) for run in results.runs})
    facts = [(len(results.runs), "run"), (questions, "answer"), (sets, "model set"), *results.others]
    tiles = ""
    for count, name in facts:
        tiles += "<div><b>{}</b><span>{}</span></div>".format(*map(_text, plural(count, name).split(" ", 1)))
    said = _in_short(results)
    items = "".join(f"<li>{_sentence(line)}</li>" for line in said)
    short = f"<ul>{items}</ul>" if said else _note("No task was run with and without SAFE on the same models.", "lacking")
    return Section("short", "In short", [f'<div class="tiles">{tiles}</div>', short])


def _accuracy(results: Results, board: Board) -> Section:
    others = sorted({r.summary.task for r in results.runs} - set(published.TASKS))
    tasks = [*published.MAIN_TASKS, *others]
    blocks = [
        _note(
            "Share of questions answered rightly, per method and task. The paper's models are 7 to 8 billion parameters large: "
            "compare what a method adds to its models, not the levels."
        )
    ]
    for task in tasks:
        runs = results.of(task)
        if runs:
            paper = [reported(row, task) for row in published.MAIN if task in row.accuracy]
            blocks.append(
                board.figure(
                    dots([*map(entry, runs), *paper]),
                    _task(task),
                    f"Accuracy on {_task(task)}: further right is better. Filled marks with their 95 % interval (Wilson) were "
                    "measured here, open marks are the paper's; E/T, fused per 100 tokens, stands in brackets. " + _counted(runs),
                )
            )
    runs = [run for task in tasks for run in results.of(task)]
    groups = {"here": _here(runs), "paper": _paper(published.MAIN)}
    blocks += _lacking(published.MAIN_TASKS, results)
    blocks += ["<h3>All numbers</h3>", _compared(groups, tasks)]
    blocks.append(_note("Percent right, E/T in percent in brackets; below it the 95 % interval and the number of questions."))
    return Section("accuracy", "Accuracy", blocks + [_subjects(results.of(task), task) for task in tasks])


def _subjects(runs: Sequence[Run], task: str) -> str:
    import pandas as pd

    names = sorted({name for run in runs for name in run.summary.subjects})
    if len(names) < 2:
        return ""
    cells = [[_subject(run.summary.subjects.get(name)) for run in runs] for name in names]
    frame = pd.DataFrame(cells, index=[_plain(n) for n in names], columns=[_plain(run.title) for run in runs])
    return f"<details><summary>{_text(_task(task))}, by subject ({len(names)})</summary>{_table(frame)}</details>"


def _subject(subject: Subject | None) -> str:
    return "–" if subject is None else f"{100 * subject.accuracy:.1f}{BREAK}of {subject.questions:,}"


def _beside(
    results: Results, board: Board, runs: Sequence[Run], rows: Sequence[published.Row], tasks: Sequence[str], sentence: str
) -> list[str]:
    """A figure per task with runs, and one table with the published rows."""
    blocks = []
    for task in tasks:
        part = [run for run in runs if run.summary.task == task]
        if part:
            paper = [reported(row, task) for row in rows if task in row.accuracy]
            drawn = dots([*map(entry, part), *paper])
            blocks.append(board.figure(drawn, _task(task), f"{sentence} {_counted(part)}"))
    return [*blocks, _compared({"here": _here(runs), "paper": _paper(rows)}, tasks)]


READ: Final = "Filled marks with their 95 % interval were measured here, open marks are the paper's."


def _control(results: Results, board: Board) -> Section:
    runs = [run for task in published.CONTROL_TASKS for run in results.of(task)]
    sentence = f"Answers of one token: if SAFE's gain comes from stability, both methods must be level here. {READ}"
    blocks = [
        _note("Without a chain of thought the answer is one token, and there is no long response to become unstable."),
        *_lacking(published.CONTROL_TASKS, results),
        *_beside(results, board, runs, published.CONTROL, published.CONTROL_TASKS, sentence),
    ]
    return Section("control", "Control without chain of thought", blocks)


def _similar(results: Results, board: Board) -> Section:
    runs = [run for task in published.MAIN_TASKS for run in results.of(task) if _is_similar(run, results.agreements)]
    tasks = sorted({"math500", *(run.summary.task for run in runs)}, key=list(published.TASKS).index)
    blocks = [_note("Where tokenizers agree there are few OOV-like tokens, and UniTE alone has less to lose.")]
    if not runs:
        blocks.append(
            _note(
                f"Not in these folders: a run whose models' tokenizers cut {SIMILAR_FROM:.0%} of the words alike, together with "
                "a tokenizers.json that names them; published numbers only.",
                "lacking",
            )
        )
    sentence = f"Models whose tokenizers cut at least {SIMILAR_FROM:.0%} of the words alike. {READ}"
    return Section("similar", "Similar tokenizers", [*blocks, *_beside(results, board, runs, published.SIMILAR, tasks, sentence)])


def _is_similar(run: Run, agreements: Sequence[Agreement]) -> bool:
    models = run.summary.models
    for held in agreements:
        shares = [held.between(models[0], other) for other in models[1:]]
        if shares and all(share is not None and share >= SIMILAR_FROM for share in shares):
            return True
    return False


def _ablations(results: Results, board: Board) -> Section:
    """SAFE with one thing changed at a time, each check alone among them; the same models with the paper's settings beside it."""
    safe = [run for run in results.runs if run.summary.method == "safe"]
    changed = {_about(run) for run in safe if varied(run.summary)}
    runs = sorted((r for r in safe if _about(r) in changed), key=lambda r: (len(varied(r.summary)), _variation(r)))
    blocks = [_note("What each part of SAFE contributes: runs that change one setting, beside the settings of the paper.")]
    if not runs:
        blocks.append(
            _note(
                "Not in these folders: a SAFE run with another n, lambda or sharpening, or with a check switched off.", "lacking"
            )
        )
    tasks = [*published.ABLATION_TASKS, *sorted({r.summary.task for r in runs} - set(published.ABLATION_TASKS))]
    for task in tasks:
        part = [run for run in runs if run.summary.task == task]
        if part:
            paper = [reported(row, task) for row in published.ABLATIONS if task in row.accuracy]
            several = len({_about(run) for run in part}) > 1
            here = [entry(run, _variation(run) + (f" · {run.summary.called}" if several else "")) for run in part]
            sentence = f"Accuracy of SAFE on {_task(task)} as one setting changes; E/T in brackets. {READ} {_counted(part)}"
            blocks.append(board.figure(dots([*here, *paper]), f"{_task(task)}: one setting changed", sentence))
    here_lines = _here(runs, lambda run: f"{run.summary.called}, {run.summary.kind}: {_variation(run)}")
    blocks.append(_compared({"here": here_lines, "paper": _paper(published.ABLATIONS)}, tasks))
    blocks.append(_checks_note(runs))
    return Section("ablations", "Ablations, and each check alone", blocks)


def _checks_note(runs: Sequence[Run]) -> str:
    wanted = {"check_oov": "no OOV-like check", "check_consensus": "no consensus check"}
    lacking = [words for key, words in wanted.items() if not any(varied(run.summary).get(key) is False for run in runs)]
    said = "The paper never measured each check alone."
    return _note(said + (f" Not in these folders either: a run with {_listed(lacking)}." if lacking else ""), "note")


def _about(run: Run) -> tuple[str, tuple[str, ...], str]:
    s = run.summary
    return s.task, tuple(s.models), s.kind


def _variation(run: Run) -> str:
    changed = varied(run.summary)
    return ", ".join(_setting(key, value) for key, value in changed.items()) or "as the paper has it (lambda 0.1, n 5)"


def _large(results: Results, board: Board) -> Section:
    runs = [r for task in published.MAIN_TASKS for r in results.of(task) if all("32b" in m.lower() for m in r.summary.models)]
    tasks = sorted({"mmlu-redux", "math500", *(r.summary.task for r in runs)}, key=list(published.TASKS).index)
    blocks = []
    if not runs:
        words = "Not in these folders: a run whose models all have 32B in their names; published numbers only."
        blocks.append(_note(words, "lacking"))
    sentence = f"Models of 32 billion parameters. {READ}"
    return Section("large", "32B models", [*blocks, *_beside(results, board, runs, published.LARGE, tasks, sentence)])


def _tokenizers(results: Results, board: Board) -> Section:
    paper = ", ".join(f"{share:g} %" for share in published.AGREEMENT)
    blocks = [_note(f"The paper's three pairs agree on {paper} of the Oxford 5000 (its Figure 4).")]
    if not results.agreements:
        blocks.append(_note("Not in these folders: a comparison of tokenizers; published numbers only.", "lacking"))
    for held in results.agreements:
        blocks += [
            _note(", ".join(held.names), "models"),
            _matrix(
                held.names,
                held.agreement,
                "Cut alike",
                f"Share of {held.words:,} words that two tokenizers cut into the same bytes, in percent: the fuller the colour, "
                "the more alike.",
            ),
            _matrix(
                held.names,
                held.agreement_with_blank,
                "Cut alike, as in running text",
                f"The same {held.words:,} words with a blank before them, as words stand in a sentence.",
            ),
            _matrix(
                held.names,
                held.oov_like,
                "OOV-like in running text",
                "Share of the row's token ends at which the column has no boundary, in percent, in a text of "
                f"{held.text_bytes:,} bytes: with the row as drafter, the column could not be asked there. It is not symmetric.",
            ),
        ]
    return Section("tokenizers", "Tokenizers", blocks)


def _matrix(names: Sequence[str], matrix: Sequence[Sequence[float]], title: str, sentence: str) -> str:
    """A matrix of shares as a table whose cells are the darker, the larger the share."""
    head = "".join(f'<th scope="col"><span>{_text(name)}</span></th>' for name in names)
    rows = []
    for name, shares in zip(names, matrix, strict=True):
        cells = "".join(f'<td style="--share:{100 * share:.1f}%">{100 * share:.1f}</td>' for share in shares)
        rows.append(f'<tr><th scope="row">{_text(name)}</th>{cells}</tr>')
    return (
        f'<figure><h3>{_text(title)}</h3><div class="scroll" tabindex="0"><table class="matrix"><thead><tr><td></td>{head}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div><figcaption>{_sentence(sentence)}</figcaption></figure>"
    )


def _speed(results: Results, board: Board) -> Section:
    blocks = [
        _note(
            "The paper, on MATH500 at 1,000 tokens: a single model takes 30 to 40 s, UniTE about 80 s, UniTE+SAFE stays within "
            f"about 10 s of the single model; {published.GAC_UNCACHED}."
        )
    ]
    if not results.speeds:
        blocks.append(_note("Not in these folders: a measurement of speed; published numbers only.", "lacking"))
    for speed in results.speeds:
        blocks += _one_speed(speed, board)
    return Section("speed", "Speed", blocks)


def _one_speed(speed: Speed, board: Board) -> list[str]:
    models = " + ".join(speed.models) + (f", {speed.dtype}" if speed.dtype else "") + (f" · {speed.title}" if speed.title else "")
    prompts, lengths_seen = len({row.prompt for row in speed.rows}), sorted({row.tokens for row in speed.rows})
    over = f"Means over {plural(prompts, 'prompt')}."
    if len(lengths_seen) == 1:
        over += f" Only {lengths_seen[0]:,} tokens were measured, so growth with length cannot be seen."
    return [
        _note(models, "models"),
        board.figure(
            lengths(speed, lambda row: 1 / row.rate_over_own, "time over the drafter's own", paper=True),
            "Time per token against length",
            "Time per token over that of the drafter's own generate in the same process: 1 is as fast as one model alone, lower "
            "is faster, and a flat line means that cost does not grow with length. Open marks: the paper at 1,000 tokens. "
            + over,
        ),
        board.figure(
            lengths(speed, lambda row: 100 * row.ensemble_rate, "E/T, %"),
            "Fused tokens against length",
            f"Ensemble operations per 100 response tokens: how often a method fuses. {over}",
        ),
        board.figure(
            lengths(speed, lambda row: 100 * row.engine_share, "engine's share, %"),
            "The engine's own share against length",
            f"Time that is no model's forward pass, in percent of the whole; it must not grow with length. {over}",
        ),
        _speed_table(speed),
    ]


def _speed_table(speed: Speed) -> str:
    import pandas as pd

    lines = []
    for variant, (name, *_) in _variant_looks(speed).items():
        rates = _by_length(speed, variant, lambda row: row.rate_over_own)
        engine = _by_length(speed, variant, lambda row: 100 * row.engine_share)
        wasted = _by_length(speed, variant, lambda row: row.discarded)
        fed = _by_length(speed, variant, lambda row: max(row.fed_over_least.values(), default=1.0))
        for tokens, rate in rates.items():
            cells = (f"{rate:.2f}", f"{1 / rate:.2f}", f"{engine[tokens]:.1f}", f"{wasted[tokens]:.0f}", f"{fed[tokens]:.2f}")
            lines.append((_plain(name), f"{tokens:,}", *cells))
    columns = ["method", "tokens", "rate over own", "time over own", "engine's share, %", "drafts discarded", "fed over least"]
    return _table(pd.DataFrame(lines, columns=columns).set_index(["method", "tokens"]), "numbers grouped")


def _exposure(results: Results, board: Board) -> Section:
    fused = [r for r in results.ordered() if r.summary.method != "single" and r.summary.statistics.tokens]
    blocks = [
        _note(
            "Never measured in the paper: how often a model was asked for its opinion although it read an OOV-like prefix, "
            "one that ends where its own reading has no boundary. SAFE leaves such places to the drafter."
        )
    ]
    for task in dict.fromkeys(run.summary.task for run in fused):
        blocks += _exposed([run for run in fused if run.summary.task == task], _task(task), board)
    if not fused:
        blocks.append(_note("Not in these folders: a run of a method that fuses.", "lacking"))
    elif not any(len(binned(run)) > 1 for run in fused):
        words = "Not in these folders: results.jsonl of a run in which some questions were exposed and others less or not."
        blocks.append(_note(words, "lacking"))
    return Section("exposure", "Exposure to OOV-like prefixes", blocks)


def _exposed(runs: Sequence[Run], task: str, board: Board) -> list[str]:
    """Exposure and accuracy on one task, by run and, of runs whose questions differ in it, by question."""
    by_run = (
        "Each mark is a run: to the right, models were asked more often on an OOV-like prefix; higher is more accurate, with the "
        f"95 % interval. {_counted(runs)}"
    )
    blocks = [board.figure(exposures(runs), f"{task}: exposure and accuracy, by run", by_run)]
    several = [run for run in runs if len(binned(run)) > 1]
    if several:
        by_question = (
            "Questions of each run, sorted by the share of their tokens at which a model was asked on an OOV-like prefix: the "
            "share answered rightly, with the 95 % interval. A line that falls fits the paper's account; but long, hard answers "
            f"meet more such places, too. {_counted(several)}"
        )
        blocks.append(board.figure(by_exposure(several), f"{task}: exposure and accuracy, by question", by_question))
    return blocks


def _work(results: Results, board: Board) -> Section:
    drafted = [run for run in results.ordered() if run.summary.method == "safe" and run.summary.statistics.drafted]
    timed = [run for run in results.ordered() if _total_ms(run) > 0]
    blocks = [_note("Never measured in the paper: what is computed in vain, and where the time goes.")]
    if drafted:
        sentence = "Drafted tokens that an ensemble point threw away, in percent of all that were drafted: shorter is better."
        blocks.append(board.figure(drafts(drafted), "Wasted drafts", f"{sentence} {_counted(drafted)}"))
    else:
        blocks.append(_note("Not in these folders: a SAFE run that counted its drafts.", "lacking"))
    if timed:
        share = max(100 * run.summary.harness_share for run in timed)
        sentence = (
            "Shares of the engine's running time, left to right as in the legend: what is neither draft nor verify is the price "
            f"of ensembling itself. The evaluation harness took at most {share:.1f} % of the whole besides."
        )
        blocks.append(board.figure(phases(timed), "Time by phase", f"{sentence} {_counted(timed)}"))
    else:
        blocks.append(_note("Not in these folders: a run that timed its phases.", "lacking"))
    return Section("work", "Work and waste", blocks)


def _weak(results: Results, board: Board) -> Section:
    """Runs whose drafter is, alone on the same task, the worse model."""
    blocks = [_note("Never measured in the paper: what happens when the weaker model drafts.")]
    for task in dict.fromkeys(run.summary.task for run in results.runs):
        runs = results.of(task)
        alone = {r.summary.models[0]: r for r in runs if r.summary.method == "single"}
        weak = [r for r in runs if not varied(r.summary) and _has_weak_drafter(r, alone)]
        if not weak:
            continue
        sets = {frozenset(r.summary.models) for r in weak}
        about = [r for r in runs if len(r.summary.models) > 1 and frozenset(r.summary.models) in sets and not varied(r.summary)]
        named = [entry(r, f"{'weaker' if r in weak else 'stronger'} drafts: {r.title}") for r in about]
        singles = [entry(r) for name, r in alone.items() if any(name in models for models in sets)]
        blocks.append(
            board.figure(
                dots([*singles, *named]),
                f"{_task(task)}: the weaker model drafts",
                "The models alone, and together with either as drafter; bars are 95 % intervals, E/T in brackets. "
                + _counted(about),
            )
        )
    if len(blocks) == 1:
        words = "Not in these folders: a run whose drafter is the worse of its models, with each of them alone on the same task."
        blocks.append(_note(words, "lacking"))
    return Section("weak", "A weak drafter", blocks)


def _has_weak_drafter(run: Run, alone: Mapping[str, Run]) -> bool:
    drafter, *verifiers = (alone.get(name) for name in run.summary.models)
    if run.summary.method == "single" or drafter is None or None in verifiers:
        return False
    return any(v is not None and v.summary.accuracy > drafter.summary.accuracy for v in verifiers)


def _sources(results: Results, board: Board) -> Section:
    import pandas as pd

    blocks = []
    if results.runs:
        lines = [
            (
                _plain(run.title),
                _task(run.summary.task),
                _plain(run.summary.called),
                f"{run.summary.questions:,}"
                + (f", {run.summary.failed:,} failed" if run.summary.failed else "")
                + ("" if run.summary.complete else ", not finished"),
                f"{run.summary.statistics.tokens_per_second:.1f}",
                f"{run.summary.seconds / 3600:.2f}",
                _plain(run.source),
            )
            for run in results.ordered()
        ]
        columns = ["run", "task", "models, drafter first", "questions", "tokens/s", "hours", "file"]
        blocks.append(_table(pd.DataFrame(lines, columns=columns).set_index("run"), "numbers facts"))
        versions = {", ".join(f"{name} {number}" for name, number in run.summary.versions.items()) for run in results.runs}
        blocks.append(_note(f"Made with {'; '.join(sorted(versions - {''})) or 'unknown versions'}."))
    if results.problems:
        items = "".join(f"<li>{_text(problem)}</li>" for problem in results.problems)
        blocks.append(f'<div class="problems" role="note"><h3>Left out</h3><ul>{items}</ul></div>')
    else:
        blocks.append(_note("Every file that was found could be used."))
    return Section("sources", "What was read", blocks)


SECTIONS: Final = (
    *(_summary, _accuracy, _control, _similar, _ablations, _large, _tokenizers, _speed),
    *(_exposure, _work, _weak, _sources),
)


# --- the page ----------------------------------------------------------------------------------------------------------------

_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""The page may use what is in it and nothing else: no request leaves the reader's machine."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c232b; --soft: #56616d; --line: #d9dfe5; --paper: #f4f6f8; --card: #fff;
  --mark: #0072b2; --warn: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #9fabb7; --line: #323c47; --paper: #11161c;
  --card: #1a2129; --mark: #56b4e9; --warn: #e9883f; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 12px; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; }
header, main, footer { max-width: 1080px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 36px; }
footer { padding-top: 4px; padding-bottom: 40px; color: var(--soft); font-size: 13px; }
h1 { margin: 0; font-size: 30px; line-height: 1.2; letter-spacing: -.02em; }
h2 { margin: 0 0 6px; font-size: 20px; letter-spacing: -.01em; }
h3 { margin: 22px 0 4px; font-size: 15px; }
header p { margin: 6px 0 18px; max-width: 80ch; color: var(--soft); }
nav { display: flex; flex-wrap: wrap; gap: 6px; margin-bottom: 24px; }
nav a { padding: 3px 11px; border: 1px solid var(--line); border-radius: 99px; background: var(--card); color: var(--ink);
  font-size: 13px; text-decoration: none; }
nav a:hover, nav a:focus-visible { border-color: var(--mark); color: var(--mark); }
section { margin: 0 0 20px; padding: 22px 24px 24px; border: 1px solid var(--line); border-radius: 12px;
  background: var(--card); }
section > p { max-width: 90ch; margin: 6px 0 10px; }
.note { color: var(--soft); }
.models { margin-top: 18px; font-weight: 600; }
.lacking { padding: 7px 12px; border-left: 3px dashed var(--soft); color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); gap: 10px; margin: 12px 0 16px; }
.tiles div { padding: 10px 14px; border: 1px solid var(--line); border-radius: 10px; }
.tiles b { display: block; font-size: 23px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 12.5px; }
ul { margin: 6px 0; padding-left: 20px; }
figure { margin: 18px 0 26px; }
figure h3 { margin: 0 0 2px; }
figcaption { max-width: 100ch; color: var(--soft); font-size: 13.5px; }
.plot { width: 100%; min-width: 0; overflow: hidden; }
.legend { display: flex; flex-wrap: wrap; gap: 0 18px; margin: 4px 0 6px; padding: 0; list-style: none; font-size: 12.5px; }
.legend li { display: flex; align-items: center; }
.legend i { display: inline-block; margin-right: 6px; font-size: 18px; font-style: normal; line-height: 1.1; }
.scroll { max-width: 100%; margin: 8px 0; overflow-x: auto; }
.scroll:focus-visible { outline: 2px solid var(--mark); }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; overflow-wrap: break-word; }
.numbers { min-width: 100%; }
.numbers td, .numbers th { padding: 5px 10px; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
.numbers td { white-space: nowrap; }
.numbers td::first-line { font-weight: 600; }
.numbers tbody th { min-width: 120px; max-width: 320px; text-align: left; font-weight: 500; }
.numbers thead th { border-bottom-width: 2px; color: var(--soft); font-weight: 600; vertical-align: bottom; }
.grouped tbody tr:has(th + th) > th:first-child { min-width: 52px; color: var(--soft); }
.facts td, .facts thead th { text-align: left; white-space: normal; }
.facts td::first-line { font-weight: 400; }
.matrix td, .matrix th { padding: 6px 9px; border: 1px solid var(--card); }
.matrix td { min-width: 62px; text-align: right; }
.matrix th { min-width: 96px; max-width: 170px; font-weight: 500; text-align: left; }
.matrix thead th { min-width: 76px; max-width: 110px; color: var(--soft); font-size: 12px; text-align: right;
  vertical-align: bottom; }
.matrix td[style] { background: color-mix(in srgb, #2b8cc4 calc(var(--share) * .72), transparent); }
details { margin: 10px 0; }
summary { cursor: pointer; font-weight: 600; }
.problems { margin-top: 14px; padding: 2px 16px 8px; border-left: 4px solid var(--warn); }
@media (max-width: 560px) {
  header, main, footer { padding-left: 10px; padding-right: 10px; }
  section { padding: 16px 12px; border-radius: 10px; }
  h1 { font-size: 24px; }
  .numbers td, .numbers th { padding: 5px 7px; }
  .numbers tbody th { max-width: 170px; }
}
@media print {
  nav { display: none; }
  section { border: 0; padding: 8px 0; }
  figure { break-inside: avoid; }
  .scroll { overflow: visible; }
}
"""

_DRAW: Final = """
const figures = JSON.parse(document.getElementById("figures").textContent);
const plots = [...document.querySelectorAll(".plot")];
const dark = matchMedia("(prefers-color-scheme: dark)");
const colours = layout => {
  const style = getComputedStyle(document.documentElement);
  const [ink, line, card] = ["--ink", "--line", "--card"].map(name => style.getPropertyValue(name).trim());
  const set = { "font.color": ink, "hoverlabel.bgcolor": card, "hoverlabel.bordercolor": ink, "hoverlabel.font.color": ink };
  for (const axis of Object.keys(layout).filter(key => /^[xy]axis/.test(key))) {
    Object.assign(set, { [axis + ".gridcolor"]: line, [axis + ".linecolor"]: line, [axis + ".zerolinecolor"]: line,
      [axis + ".color"]: ink, [axis + ".tickcolor"]: line });
  }
  return set;
};
const drawn = plots.map(async place => {
  const { data, layout } = figures[place.dataset.figure];
  await Plotly.newPlot(place, data, layout, { responsive: true, displayModeBar: false });
  await Plotly.relayout(place, colours(layout));
});
dark.addEventListener("change", () => plots.forEach(place => Plotly.relayout(place, colours(place.layout))));
Promise.all(drawn).then(() => document.documentElement.dataset.drawn = plots.length);
"""

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>SAFE, measured</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>SAFE, measured</h1>
<p>Language models with different tokenizers, fused token by token: what was measured here, beside what the paper “When to
Ensemble” (ICLR 2026, arXiv 2510.15346) reports.</p>
<nav aria-label="Contents">{contents}</nav>
</header>
<main>
{sections}
</main>
<footer>Intervals are Wilson’s at 95 %. The page holds its data and its drawing code, and asks nothing of any network.</footer>
<noscript>
<p class="lacking">The figures are drawn with JavaScript, which is switched off here; the tables hold the accuracies.</p>
</noscript>
<script type="application/json" id="figures">{figures}</script>
<script>{library}</script>
<script>{draw}</script>
</body>
</html>
"""


def page_of(results: Results) -> str:
    """The whole page as text. What the files say stands in it escaped, or as JSON in which no tag can be closed."""
    from plotly.offline import get_plotlyjs

    board = Board()
    sections = [build(results, board) for build in SECTIONS]
    contents = "".join(f'<a href="#{section.id}">{_text(section.title)}</a>' for section in sections)
    body = "\n".join(
        f'<section id="{s.id}" aria-labelledby="{s.id}-title"><h2 id="{s.id}-title">{_text(s.title)}</h2>'
        f"{''.join(s.blocks)}</section>"
        for s in sections
    )
    figures = json.dumps(board.figures, ensure_ascii=True).replace("<", "\\u003c")
    parts = {"policy": _POLICY, "style": _STYLE, "contents": contents, "sections": body, "figures": figures}
    return _PAGE.format(**parts, library=get_plotlyjs(), draw=_DRAW)


# --- the command -------------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``report`` takes on the command line."""
    parser.add_argument("paths", nargs="+", metavar="DIR", help="folders (or files) that the benchmarks wrote")
    parser.add_argument("--out", default="report.html", metavar="OUT.html", help="where the page goes (default: report.html)")
    parser.set_defaults(save=None)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Write the page; returns where it is and what it was made of. Raises InputError where nothing can be read or written."""
    results = results_of(files_of(options.paths))
    for problem in results.problems:
        print(f"report: {problem}", file=sys.stderr)
    target = Path(options.out)
    try:
        target.write_text(page_of(results), encoding="utf-8")
    except OSError as error:
        raise InputError(f"The page cannot be written to {target}: {error.strerror}. Choose another --out.") from error
    counts = {"runs": len(results.runs), "speed": len(results.speeds), "tokenizers": len(results.agreements)}
    print(f"{target}: made of {results.said}.", flush=True)
    return {"kind": "report", "out": str(target), **counts, "problems": results.problems}
