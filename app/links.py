"""Links to a moment: what the address of a page asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs

from safe_core.events import Commit, Event


@dataclass(frozen=True, slots=True)
class Asked:
    """The place a link asks for: ``#trace=...&run=...&window=...&token=...``, each part as it was written."""

    trace: str
    run: str
    window: str
    token: str

    @staticmethod
    def of(fragment: str) -> Asked:
        """From the part of an address behind ``#``."""
        parts = parse_qs(fragment[:2000].removeprefix("#"), keep_blank_values=True)
        return Asked(*(parts.get(name, [""])[0] for name in ("trace", "run", "window", "token")))

    def missing(self, runs: Mapping[str, Sequence[Event]] | None) -> str:
        """What of it is not in these runs, as a sentence; without runs the trace itself is missing. Nothing for nothing."""
        if runs is None:
            return f"The link asks for a trace named '{self.trace[:80]}', which is not in this gallery."
        if self.run and self.run not in runs:
            return f"The link asks for a run '{self.run[:40]}', but there are only: {', '.join(runs)}."
        if not (self.token or self.window) or not runs:
            return ""
        events = runs[self.run or next(iter(runs))]
        commits = [event for event in events if isinstance(event, Commit)]
        kind, asked, there = "window", self.window, len(commits)
        if self.token:
            kind, asked, there = "token", self.token, sum(len(event.tokens) for event in commits)
        if asked.isdecimal() and asked.isascii() and int(asked[:9]) < there:
            return ""
        return f"The link asks for {kind} '{asked[:40]}', but that run has {there:,} {kind}s, counted from 0."
