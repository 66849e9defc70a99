"""A trace: record it, read it back, fold it into statistics. Nothing here imports torch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safe_core import events as ev
from safe_core.types import Reason, TraceError

MAX_LINE_BYTES = 16 << 20
"""A line longer than this is no event of ours; refusing it bounds what an uploaded file can make us hold."""


class Statistics:
    """Every number a run reports (SPEC of the trace), folded over its events: the one place where anything is counted."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._ms: defaultdict[str, float] = defaultdict(float)
        self._passes: Counter[str] = Counter()
        self._fed: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._fused_at: list[int] = []  # response index of every fused token
        self._verdicts: dict[int, ev.Check] = {}  # of the window under way, by index
        self._confirmed: set[int] = set()  # its drafted tokens that fusion chose again
        self._verifiers: list[str] = []

    def add(self, event: ev.Event) -> None:
        """Count one event. Events of a run in order, each once."""
        match event:
            case ev.Start(models=models):
                self._verifiers = [m.name for m in models if m.role == "verifier"]
                self._passes.update({m.name: 0 for m in models})
            case ev.Draft():
                self._count["drafted"] += len(event.tokens) - event.carried
                self._spend("draft", event)
                self._verdicts, self._confirmed = {}, set()
            case ev.Retokenize():
                self._ms["retokenize"] += event.ms
            case ev.Verify():
                self._spend("verify", event)
                self._verdicts |= {c.index: c for c in event.checks}
            case ev.Ensemble():
                self._count["ensembles"] += 1
                self._count["replaced"] += event.replaced
                self._ms["ensemble"] += event.ms
                asked = self._verdicts.get(event.index)
                broken = [] if asked is None else asked.oov_for
                self._count["asked_oov"] += bool(broken)
                self._count["derailed"] += bool(broken) and event.replaced
                self._asked.update(broken)
                if not event.replaced:
                    self._confirmed.add(event.index)
                self._fused_at.append(self._count["tokens"] + event.index)
            case ev.Commit():
                self._commit(event)

    @property
    def tokens(self) -> int:
        """Response tokens so far."""
        return self._count["tokens"]

    def close(self, reason: Reason, text: str, elapsed_ms: float, error: str | None, oov_like: dict[str, list[int]]) -> ev.End:
        """The last event of a run whose events have all been added."""
        taken_over = max(0.0, sum(self._ms[phase] for phase in PHASES) - elapsed_ms)  # cycles of a run that was continued
        ms = elapsed_ms + taken_over
        return ev.End(reason=reason, text=text, stats=self.numbers(ms, oov_like), ms=ms, error=error, oov_like=oov_like)

    def numbers(self, elapsed_ms: float, oov_like: dict[str, list[int]]) -> dict[str, Any]:
        """The statistics as plain numbers. Rates are shares of the response tokens; times are milliseconds."""
        count = self._count
        tokens = count["tokens"]
        phases = {phase: round(self._ms[phase], 3) for phase in PHASES}
        exposed = {name: set(indices) for name, indices in oov_like.items()}
        asked_final = {name: sum(at - 1 in exposed.get(name, ()) for at in self._fused_at) for name in self._verifiers}
        forward = min(self._ms["forward"], elapsed_ms)
        return {
            "tokens": tokens,
            "windows": count["windows"],
            "ensembles": count["ensembles"],
            "ensemble_rate": _share(count["ensembles"], tokens),
            "replaced": count["replaced"],
            "replaced_rate": _share(count["replaced"], tokens),
            **{name: count[name] for name in ("oov", "unanimous", "majority", "gated", "unaligned", "edge")},
            "drafted": count["drafted"],
            "discarded": count["drafted"] - count["kept"],
            "asked_oov": count["asked_oov"],
            "derailed": count["derailed"],
            "asked_oov_by_model": {name: self._asked[name] for name in self._verifiers},
            "asked_oov_final_by_model": asked_final,
            "oov_like_tokens": {name: len(indices) for name, indices in oov_like.items()},
            "passes": dict(self._passes),
            "fed": {name: self._fed[name] for name in self._passes},
            "ms": {
                **phases,
                "other": round(max(0.0, elapsed_ms - sum(phases.values())), 3),
                "forward": round(forward, 3),
                "total": round(elapsed_ms, 3),
            },
            "engine_share": _share(elapsed_ms - forward, elapsed_ms),
            "tokens_per_second": round(tokens / elapsed_ms * 1e3, 2) if elapsed_ms > 0.0 else 0.0,
        }

    def _spend(self, phase: str, event: ev.Draft | ev.Verify) -> None:
        self._ms[phase] += event.ms
        self._ms["forward"] += event.forward_ms
        for fed in event.fed:
            self._passes[fed.model] += fed.passes
            self._fed[fed.model] += fed.tokens

    def _commit(self, event: ev.Commit) -> None:
        """Verdicts count where the run stood by them: for tokens that a cycle committed, or fused."""
        self._count["windows"] += 1
        for index, token in enumerate(event.tokens):
            self._count["tokens"] += 1
            seen = self._verdicts.get(index)
            self._count["kept"] += token.source == "draft" or index in self._confirmed
            if seen is not None and seen.verdict not in ("unchecked", "ensemble"):
                self._count[seen.verdict] += 1
            if seen is not None and seen.verdict != "unchecked":
                self._count["edge"] += seen.edge
        self._verdicts, self._confirmed = {}, set()


def _share(part: float, whole: float) -> float:
    return round(part / whole, 6) if whole else 0.0


PHASES = ("draft", "retokenize", "verify", "ensemble")


def statistics(events: Iterable[ev.Event]) -> dict[str, Any]:
    """The statistics of a whole trace, or of a prefix of one."""
    fold, end = Statistics(), None
    for event in events:
        fold.add(event)
        end = event if isinstance(event, ev.End) else end
    if end is not None:
        return fold.numbers(end.ms, end.oov_like)
    return fold.numbers(sum(fold._ms[phase] for phase in PHASES), {})


@dataclass(frozen=True)
class Trace:
    """A recorded run: its events, ``start`` first. A prefix of a trace is a trace."""

    events: tuple[ev.Event, ...]

    @property
    def start(self) -> ev.Start:
        first = self.events[0]
        assert isinstance(first, ev.Start)
        return first

    @property
    def end(self) -> ev.End | None:
        last = self.events[-1]
        return last if isinstance(last, ev.End) else None

    @cached_property
    def statistics(self) -> dict[str, Any]:
        return statistics(self.events)

    @cached_property
    def data(self) -> bytes:
        """The response's bytes."""
        return b"".join(bytes.fromhex(t.hex) for e in self.events if isinstance(e, ev.Commit) for t in e.tokens)


def write(path: Path | str, events: Iterable[ev.Event]) -> None:
    """Write a trace file, one event a line, each as it comes, so that an interrupted run leaves a valid prefix."""
    for _ in recorded(path, events):
        pass


def recorded(path: Path | str, events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """Pass events through, writing each to the file first. Raises TraceError where the file cannot be written."""
    try:
        with open(path, "wb") as file:
            for event in events:
                file.write(ev.to_json(event) + b"\n")
                file.flush()
                yield event
    except OSError as error:
        raise TraceError(f"The trace could not be written to {path}: {error.strerror or error}.") from error


def dumps(events: Iterable[ev.Event]) -> bytes:
    """The bytes of a trace file."""
    return b"".join(ev.to_json(event) + b"\n" for event in events)


def read(path: Path | str) -> Trace:
    """The trace in a file. Raises TraceError, naming the line, where it is none."""
    try:
        with open(path, "rb") as file:
            return parse(file)
    except OSError as error:
        raise TraceError(f"The trace {path} could not be read: {error.strerror or error}.") from error


def loads(data: bytes) -> Trace:
    """The trace in the bytes of a file. Raises TraceError, naming the line, where it is none."""
    return parse(data.splitlines(keepends=True))


def parse(lines: Iterable[bytes]) -> Trace:
    """Events of the lines of a trace file, checked one by one and in their order. Nothing in them is ever run."""
    events: list[ev.Event] = []
    order = Order()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(f"Line {number} of the trace is longer than {MAX_LINE_BYTES >> 20} MB, which no event is.")
        try:
            event = ev.from_json(line)
            order.accept(event)
        except TraceError as problem:
            raise TraceError(f"Line {number} of the trace cannot be used: {problem}") from None
        events.append(event)
    if not events:
        raise TraceError("The file holds no trace event; a trace begins with a line whose event is 'start'.")
    return Trace(tuple(events))


class Order:
    """Whether events come as a run makes them. Catches files that were cut in the middle, joined, or edited."""

    def __init__(self) -> None:
        self._models: list[str] = []
        self._window = 0
        self._offset = 0
        self._drafted = 0
        self._ended = False
        self._seen: set[str] = set()

    def accept(self, event: ev.Event) -> None:
        """Raises TraceError that says what was expected."""
        if isinstance(event, ev.Start):
            self._begin(event)
            return
        if not self._models:
            raise TraceError("a trace must begin with a 'start' event.")
        if self._ended:
            raise TraceError("nothing may follow the 'end' event.")
        if isinstance(event, ev.End):
            self._ended = True
            return
        if event.window != self._window:
            raise TraceError(f"window {self._window} was expected, not {event.window}.")
        name = type(event).__name__.lower()
        before = {
            "draft": None,
            "retokenize": "draft",
            "verify": "retokenize",
            "ensemble": "verify",
            "commit": "draft",
        }[name]
        if before is not None and before not in self._seen:
            raise TraceError(f"'{name}' of window {event.window} came before its '{before}'.")
        if name in self._seen and name not in ("verify", "ensemble"):
            raise TraceError(f"window {event.window} has a second '{name}'.")
        self._seen.add(name)
        self._fits(event)

    def _begin(self, event: ev.Start) -> None:
        if event.format != ev.FORMAT:
            raise TraceError(f"the format is '{event.format}'; this program reads '{ev.FORMAT}'.")
        if event.version > ev.VERSION:
            raise TraceError(
                f"the trace has version {event.version}; this program reads up to {ev.VERSION}. Update the program to open it."
            )
        if self._models:
            raise TraceError("a second 'start' event; a trace holds one run.")
        if not event.models:
            raise TraceError("'start' names no model.")
        self._models = [model.name for model in event.models]

    def _fits(self, event: ev.Draft | ev.Retokenize | ev.Verify | ev.Ensemble | ev.Commit) -> None:
        match event:
            case ev.Draft():
                self._starts_are_right(event.tokens, "draft")
                self._drafted = len(event.tokens)
            case ev.Retokenize():
                self._known(reading.model for reading in event.readings)
            case ev.Verify():
                self._known(name for check in event.checks for name in check.oov_for)
                if any(check.index >= self._drafted for check in event.checks):
                    raise TraceError(f"a check lies outside the window of {self._drafted} tokens.")
                if any(len(check.p) not in (0, len(self._models)) for check in event.checks):
                    raise TraceError(f"a check must hold one p for each of the {len(self._models)} models.")
            case ev.Ensemble():
                if event.index >= self._drafted:
                    raise TraceError(f"the ensemble point lies outside the window of {self._drafted} tokens.")
                if any(len(c.p) != len(self._models) for c in event.candidates):
                    raise TraceError(f"a candidate must hold one p for each of the {len(self._models)} models.")
            case ev.Commit():
                self._offset = self._starts_are_right(event.tokens, "commit")
                self._window += 1
                self._seen = set()

    def _known(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._models:
                raise TraceError(f"'{name}' is none of the models that 'start' names.")

    def _starts_are_right(self, tokens: Sequence[ev.DraftToken] | Sequence[ev.CommitToken], what: str) -> int:
        offset = self._offset
        for token in tokens:
            if token.start != offset:
                raise TraceError(f"a {what} token starts at byte {token.start} where {offset} was expected.")
            offset += len(token.hex) // 2
        return offset
