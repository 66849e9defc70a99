"""Traces as pandas tables. Every number and word comes from the events; other parts of the page draw from these tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from app.glyphs import visible
from safe_core import events as ev
from safe_core.events import Event
from safe_core.trace import statistics as fold_statistics

ASKED: Final = ("ensemble", "unanimous", "majority")
STATES: Final = {
    "unanimous": "all agree",
    "majority": "majority",
    "oov": "not safe",
    "kept": "fused, kept",
    "replaced": "fused, replaced",
    "gated": "gate",
    "unaligned": "unaligned",
    "unchecked": "unchecked",
    "plain": "one model",
}
"""How a token came to stand, in the words of the page's legend."""


@dataclass(slots=True)
class Cycle:
    """The events of one window. ``fusions`` and ``checks`` by position, the last word on each."""

    number: int
    draft: ev.Draft | None = None
    checks: dict[int, ev.Check] = field(default_factory=dict)
    fusions: dict[int, ev.Ensemble] = field(default_factory=dict)
    commit: ev.Commit | None = None
    ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("draft", "retokenize", "verify", "ensemble"), 0.0))


def cycles(events: Sequence[Event]) -> list[Cycle]:
    """A trace's windows, in order."""
    found: defaultdict[int, list[Event]] = defaultdict(list)
    for event in events:
        if not isinstance(event, ev.Start | ev.End):
            found[event.window].append(event)
    return [_cycle(number, parts) for number, parts in sorted(found.items())]


def _cycle(number: int, parts: Sequence[Event]) -> Cycle:
    cycle = Cycle(number)
    for event in parts:
        match event:
            case ev.Draft():
                cycle.draft = event
                cycle.ms["draft"] += event.ms
            case ev.Retokenize():
                cycle.ms["retokenize"] += event.ms
            case ev.Verify():
                cycle.checks |= {check.index: check for check in event.checks}
                cycle.ms["verify"] += event.ms
            case ev.Ensemble():
                cycle.fusions[event.index] = event
                cycle.ms["ensemble"] += event.ms
            case ev.Commit():
                cycle.commit = event
    return cycle


@dataclass(frozen=True, slots=True)
class Placed:
    """A token of the response and the position of its window that it stands for; ``piece`` counts the pieces of a fused
    string from 0."""

    token: ev.CommitToken
    cycle: Cycle
    index: int
    piece: int
    state: str
    check: ev.Check | None

    @property
    def broken(self) -> bool:
        """Whether a model was asked here although it read an OOV-like prefix."""
        return self.check is not None and bool(self.check.oov_for) and self.check.verdict in ASKED


def placed(events: Sequence[Event]) -> Iterator[Placed]:
    """Every token of the response, in order."""
    start = events[0] if events else None
    alone = isinstance(start, ev.Start) and start.method == "single"
    for cycle in cycles(events):
        following, point, piece = 0, -1, 0
        for token in cycle.commit.tokens if cycle.commit is not None else ():
            if token.source == "draft" or following in cycle.fusions or point < 0:
                point, piece, following = following, 0, following + 1
            else:
                piece += 1
            check = cycle.checks.get(point)
            yield Placed(token, cycle, point, piece, _state(token, check, cycle.fusions.get(point), alone), check)


def _state(token: ev.CommitToken, check: ev.Check | None, fusion: ev.Ensemble | None, alone: bool) -> str:
    if token.source == "ensemble":
        return "replaced" if fusion is not None and fusion.replaced else "kept"
    if check is None:
        return "plain" if alone else "unchecked"
    return "unchecked" if check.verdict == "ensemble" else check.verdict


def tokens(events: Sequence[Event]) -> pd.DataFrame:
    """One row per token of the response: where it came from, the mean that decided, and who could not be asked."""
    rows = [
        {
            "token": number,
            "window": at.cycle.number,
            "text": visible(bytes.fromhex(at.token.hex), at.token.eos),
            "state": STATES[at.state],
            "mean p": None if at.check is None else at.check.mean_p,
            "OOV-like for": "" if at.check is None else ", ".join(at.check.oov_for),
            "asked on a broken prefix": at.broken,
            "edge": at.check is not None and at.check.edge,
            "byte": at.token.start,
        }
        for number, at in enumerate(placed(events))
    ]
    return _table(
        rows, ["token", "window", "text", "state", "mean p", "OOV-like for", "asked on a broken prefix", "edge", "byte"]
    )


def windows(events: Sequence[Event]) -> pd.DataFrame:
    """One row per window: what was drafted, what became of it, and how long each phase took in milliseconds."""
    return _table(
        [_window(cycle) for cycle in cycles(events)],
        ["window", "byte", "drafted", "committed", "verdicts", "fused", "replaced", "carried", *(f"{p} ms" for p in PHASES)],
    )


PHASES: Final = ("draft", "retokenize", "verify", "ensemble")


def _window(cycle: Cycle) -> dict[str, Any]:
    draft = cycle.draft
    final = [] if cycle.commit is None else cycle.commit.tokens
    return {
        "window": cycle.number,
        "byte": None if draft is None else draft.start,
        "drafted": "" if draft is None else " | ".join(visible(bytes.fromhex(t.hex), t.eos) for t in draft.tokens),
        "committed": " | ".join(visible(bytes.fromhex(t.hex), t.eos) for t in final),
        "verdicts": " ".join(check.verdict for _, check in sorted(cycle.checks.items())),
        "fused": len(cycle.fusions),
        "replaced": sum(fusion.replaced for fusion in cycle.fusions.values()),
        "carried": 0 if draft is None else draft.carried,
        **{f"{phase} ms": cycle.ms[phase] for phase in PHASES},
    }


def points(events: Sequence[Event]) -> pd.DataFrame:
    """One row per ensemble point: what was drafted, what won, and by how much."""
    places = {(at.cycle.number, at.index): number for number, at in reversed(list(enumerate(placed(events))))}
    rows = [_point(e, places.get((e.window, e.index))) for e in events if isinstance(e, ev.Ensemble)]
    names = ["token", "window", "drafted", "chosen", "replaced", "mean", "sharpened", "runner-up", "smooth", "candidates", "by"]
    return _table(rows, names)


def _point(e: ev.Ensemble, token: int | None) -> dict[str, Any]:
    chosen = next((c for c in e.candidates if (c.hex, c.eos) == (e.chosen_hex, e.chosen_eos)), None)
    others = [c for c in e.candidates if c is not chosen]
    return {
        "token": token,
        "window": e.window,
        "drafted": visible(bytes.fromhex(e.draft_hex), e.draft_eos),
        "chosen": visible(bytes.fromhex(e.chosen_hex), e.chosen_eos),
        "replaced": e.replaced,
        "mean": None if chosen is None else chosen.mean,
        "sharpened": None if chosen is None else chosen.sharpened,
        "runner-up": visible(bytes.fromhex(others[0].hex), others[0].eos) if others else "",
        "smooth": e.smooth,
        "candidates": len(e.candidates),
        "by": "a person" if e.forced else "fusion",
    }


NUMBERS: Final = {
    "tokens": "tokens",
    "windows": "windows",
    "ensembles": "ensemble operations",
    "ensemble_rate": "E/T",
    "replaced": "replaced",
    "replaced_rate": "replaced / tokens",
    "unanimous": "all agree",
    "majority": "majority",
    "oov": "OOV-like, not asked",
    "asked_oov": "asked on a broken prefix",
    "derailed": "… and then replaced",
    "gated": "gate",
    "unaligned": "unaligned",
    "edge": "decided at a window's edge",
    "drafted": "drafted",
    "discarded": "drafted, discarded",
    "engine_share": "engine's share of the time",
    "tokens_per_second": "tokens/s",
}
"""The numbers of a run in the order they are shown, and their names."""

Titled = tuple[str, Sequence[Event]]


def statistics(runs: Sequence[Titled]) -> pd.DataFrame:
    """The numbers of several runs beside each other: a row per number, a column per run."""
    folded = [fold_statistics(events) for _, events in runs]
    table: dict[str, list[Any]] = {"number": []}
    for words in NUMBERS.values():
        table["number"].append(words)
    columns = [[stats[name] for name in NUMBERS] for stats in folded]
    models = list(dict.fromkeys(name for stats in folded for name in stats["fed"]))
    for what, words in (("passes", "forward passes of"), ("fed", "tokens fed to")):
        for model in models:
            table["number"].append(f"{words} {model}")
            for column, stats in zip(columns, folded, strict=True):
                column.append(stats[what].get(model))
    for phase in (*PHASES, "other", "total"):
        table["number"].append(f"{phase} ms")
        for column, stats in zip(columns, folded, strict=True):
            column.append(stats["ms"][phase])
    frame = pd.DataFrame(table)
    for name, column in zip(unique([title for title, _ in runs]), columns, strict=True):
        frame[name] = pd.Series(column, dtype=object)
    return frame


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with numbers in the four digits that a page has room for."""
    return frame.map(lambda value: round(value, 4) if isinstance(value, float) else value)


def unique(titles: Sequence[str]) -> list[str]:
    """The titles, numbered where two are the same."""
    return [title if titles.count(title) == 1 else f"{title} ({titles[: k + 1].count(title)})" for k, title in enumerate(titles)]


def _table(rows: list[dict[str, Any]], names: list[str]) -> pd.DataFrame:
    """A table with all columns, also where there is no row."""
    return pd.DataFrame(rows, columns=names)
